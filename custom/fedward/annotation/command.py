"""``fedward annotate``: the page for clinicians, and the exchange of files.

Nothing heavy is imported before the command runs.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedward.config import DataSpec
from fedward.errors import ConfigError
from fedward.label_kinds import LabelKind, kind_of_field
from fedward.terminal import complain
from fedward.text import composed, count

if TYPE_CHECKING:
    from fedward.annotation.pictures import Pictures
    from fedward.annotation.queue import Queue

PORT = 8765
"""Port of the page by default."""
LONGEST_CLASS = 200
"""The most letters of a class's name."""


def add_annotate(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``annotate``."""
    parser.set_defaults(command=_annotate)
    default_classes = " ".join(DataSpec().classes)
    parser.add_argument(
        "site_file",
        type=Path,
        metavar="SITE_FILE",
        help="the file that describes the site's images",
    )
    parser.add_argument(
        "--classes",
        nargs="+",
        default=[],
        type=composed,
        metavar="CLASS",
        help="the job's classes, in its order "
        f"(default: those of data.json beside the file, else {default_classes})",
    )
    parser.add_argument(
        "--multi-label",
        action="store_true",
        help="an image may show several classes or none: data.multi_label of the job "
        "(default: as data.json says)",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=PORT,
        help=f"where the page listens, 0 for any free port (default: {PORT})",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address of the page (default: 127.0.0.1, for this machine alone)",
    )
    files = parser.add_mutually_exclusive_group()
    files.add_argument(
        "--export",
        nargs=2,
        metavar=("FORM", "TO"),
        help="write the open questions for another tool and end; "
        "FORM is csv, label-studio or monai-label",
    )
    files.add_argument(
        "--audit",
        type=Path,
        metavar="CSV",
        help="write every answer ever given to a new CSV, with reader, time, seconds and remark, "
        "print how often readers agree with themselves, and end",
    )
    files.add_argument(
        "--import",
        nargs="+",
        type=Path,
        metavar="IN",
        dest="returned",
        help="read the answers in files of another tool and end (default: open the page)",
    )


def _annotate(options: argparse.Namespace) -> int:
    from fedward.annotation.audit import write_audit
    from fedward.annotation.pictures import Pictures
    from fedward.annotation.queue import queue_of
    from fedward.sites import require_one_site
    from fedward.sites.data_file import read_data_file

    require_one_site(options.site_file)
    data_file = read_data_file(options.site_file.parent) or {}
    if not options.classes:
        options.classes = list(data_file.get("classes", DataSpec().classes))
    kind = kind_of_field(options.multi_label or data_file.get("multi_label") is True)
    _check_classes(options.classes, kind)
    _check_form(options.export)
    pictures = Pictures(
        options.site_file, options.classes, kind, _titles(data_file, options.classes)
    )
    queue = queue_of(options.site_file, kind)
    _check_kind(queue, kind)
    if options.export:
        form, path = options.export
        print(queue.export(form, Path(path), options.classes, pictures.png).text())
        return 0
    if options.audit:
        answer_count = write_audit(queue, options.audit)
        print(f"{options.audit}: {count(answer_count, 'answer')}")
        for reader, agreement in queue.own_agreement().items():
            print(f"{reader}: {agreement.text()}")
        return 0
    if options.returned:
        return _import(options, queue, pictures)
    return _serve(options, queue, pictures)


def _titles(data_file: Mapping[str, Any], classes: Sequence[str]) -> dict[str, str]:
    """Return the job's titles of its classes, by data.json; of the default classes, fedward's."""
    titles = data_file.get("titles", DataSpec(classes=tuple(classes)).titles)
    if not isinstance(titles, Mapping):
        return {}
    return {name: str(titles[name]) for name in classes if titles.get(name)}


def _check_kind(queue: "Queue", kind: LabelKind) -> None:
    """Raise ConfigError if the newest run asks for another kind of answer.

    Answers of the wrong kind would be misread.
    """
    asked = queue.kind_asked()
    if asked is None or asked is kind:
        return
    if asked.exclusive:
        remedy = "Leave the option out, and multi_label of data.json if it is there."
    else:
        remedy = "Give the option."
    raise ConfigError(
        "fedward annotate --multi-label",
        remedy,
        expected=f"answers with {asked.answer_words}, as the newest run asks",
        found=kind.answer_words,
    )


def _check_classes(classes: Sequence[str], kind: LabelKind) -> None:
    """Raise ConfigError unless there are two or more different names that answers can be."""
    from fedward.annotation.records import NO_CLASS
    from fedward.labels import NO_FINDING, SEPARATOR

    other_answers = {*NO_CLASS, "skip", "undo", "skipped"}
    if not kind.exclusive:
        other_answers.add(NO_FINDING)
    for name in classes:
        is_other_answer = name.casefold() in other_answers or name in other_answers
        has_separator = not kind.exclusive and SEPARATOR in name
        if is_other_answer or has_separator or not _is_plain(name):
            words = ", ".join(sorted(other_answers))
            raise ConfigError(
                "fedward annotate --classes",
                "Write it differently.",
                expected=f"visible words that mean no other answer ({words})",
                found=f"{classes}",
            )
    if len(classes) < 2 or len(set(classes)) < len(classes):
        raise ConfigError(
            "fedward annotate --classes",
            "Write it differently.",
            expected="two or more different names",
            found=f"{classes}",
        )


def _is_plain(name: str) -> bool:
    """Return whether readers see all of a name, on one line and in the right direction."""
    return name.isprintable() and name == name.strip() and 0 < len(name) <= LONGEST_CLASS


def _check_form(export: Sequence[str] | None) -> None:
    """Raise ConfigError if an export has an unknown format."""
    from fedward.annotation.handover import FORMS

    if export and export[0] not in FORMS:
        raise ConfigError(
            "fedward annotate --export",
            "Write it differently.",
            expected=f"one of {', '.join(FORMS)}",
            found=f"{export}",
        )


def _import(options: argparse.Namespace, queue: "Queue", pictures: "Pictures") -> int:
    """Return 0 if all answers of all files are used, otherwise 1."""
    is_complete = True
    for path in options.returned:
        imported = queue.import_labels(
            path, options.classes, pictures.ids, names=pictures.class_of_word
        )
        print(imported.text())
        if imported.refused or imported.unknown_ids:
            is_complete = False
    return 0 if is_complete else 1


def _serve(options: argparse.Namespace, queue: "Queue", pictures: "Pictures") -> int:
    from fedward.annotation.desk import Desk
    from fedward.annotation.page.app import Page
    from fedward.annotation.page.guard import Guard, is_loopback
    from fedward.annotation.page.server import Token, address, listen, serve, server

    desk = Desk(queue, pictures.ids, options.classes)
    with listen(options.host, options.port) as listening:
        token = Token(queue.folder)
        page = Page(desk, pictures, Guard(token.value, options.host))
        for sample_id in desk.foreign_ids():
            complain(f"asked for, but not among the site's images: {sample_id}")
        if not is_loopback(options.host):
            complain(
                "WARNING: other machines can reach this page, and what it sends is not encrypted. "
                "Safer: leave --host out and let each reader use `ssh -L`."
            )
        running = server(page.app(), listening)
        print(f"{pictures.site}: open {address(listening, token.value)} (Ctrl-C stops)", flush=True)
        serve(running)
        token.forget()
    print("Stopped. Every answer that the page acknowledged is saved.")
    return 0
