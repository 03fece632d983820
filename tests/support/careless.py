"""A server that lets everything pass: what its sites must then refuse themselves."""

import json

from fedward.flare.kits.builder import RESOURCES
from local_federation import SERVER, Federation
from waiting import appears


def let_everything_pass(federation: Federation) -> None:
    """Restart the server without rules: any code, class and file, no signatures, and a shell."""
    kit = federation.kit(SERVER)
    rules = kit / "local" / "authorization.json"
    granted = rules.read_text()
    for right in ("byoc", "shell_commands"):
        granted = granted.replace(f'"{right}": "none"', f'"{right}": "any"')
    rules.write_text(granted)
    resources = json.loads((kit / "local" / RESOURCES).read_text())
    del resources["app_validator"]
    (kit / "local" / RESOURCES).write_text(json.dumps({**resources, "class_allow_list": ["*"]}))
    startup = kit / "startup" / "fed_server.json"
    content = json.loads(startup.read_text())
    startup.write_text(json.dumps({**content, "require_signed_jobs": False}))
    restart(federation, SERVER)


def restart(federation: Federation, name: str) -> None:
    """Let a participant read its files again; the server may still call it connected meanwhile."""
    log = federation.kit(name) / "log.txt"
    federation.stop_one(name)
    log.unlink()
    federation.start(name)
    federation.wait_until_ready()
    if name == SERVER:
        return
    registered = f"Successfully registered client:{name}"
    assert appears(lambda: registered in log.read_text()), f"{name} has not come back"
