"""Jobs that bring more than an export: changes to an exported app."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

CLIENT = "config/config_fed_client.json"
SERVER = "config/config_fed_server.json"
Change = Callable[[Path], None]


def bring(name: str, text: str = "") -> Change:
    """Add a file to the app."""

    def change(app: Path) -> None:
        (app / name).parent.mkdir(parents=True, exist_ok=True)
        (app / name).write_text(text)

    return change


def edit(file: str, alter: Callable[[Any], None]) -> Change:
    """Let ``alter`` change the content of a configuration."""

    def change(app: Path) -> None:
        content = json.loads((app / file).read_text())
        alter(content)
        (app / file).write_text(json.dumps(content))

    return change


def component(file: str, path: str, **args: Any) -> Change:
    """Add a component to a configuration."""
    return edit(
        file,
        lambda content: content["components"].append({"id": "more", "path": path, "args": args}),
    )


def replaced(file: str, other: str, text: str) -> Change:
    """Put another file in the place of a configuration."""

    def change(app: Path) -> None:
        (app / file).unlink()
        (app / other).write_text(text)

    return change


def rewritten(file: str, alter: Callable[[str], str]) -> Change:
    """Let ``alter`` change the text of a configuration."""

    def change(app: Path) -> None:
        (app / file).write_text(alter((app / file).read_text()))

    return change


def both(*changes: Change) -> Change:
    """Make one change after the other."""

    def change(app: Path) -> None:
        for one_change in changes:
            one_change(app)

    return change


def args(file: str) -> Callable[[Any], dict[str, Any]]:
    """Return a function that finds the arguments of the part that runs the experiment."""
    if file == CLIENT:
        return lambda content: content["executors"][0]["executor"]["args"]
    return lambda content: content["workflows"][0]["args"]


def loader(file: str, code: str) -> Change:
    """Bring code among the configuration, and a class of a listed package that imports it."""
    package = "{JOB_ID}.app_{SITE_NAME}.config.evil"
    return both(
        bring("config/evil.py", code),
        component(file, "fedward.report.template.PackageLoader", package_name=package),
    )
