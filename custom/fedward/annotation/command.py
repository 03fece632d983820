"""``fedward annotate``: the page for clinicians, and files both ways. Imports nothing heavy before
it runs.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fedward.config import DataSpec
from fedward.errors import ConfigError
from fedward.label_kinds import LabelKind, kind_of_field
from fedward.terminal import complain

if TYPE_CHECKING:
    from fedward.annotation.pictures import Pictures
    from fedward.annotation.queue import Queue

PORT = 8765
LONGEST_CLASS = 200
"""Letters of a class's name."""


def add_annotate(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``annotate``."""
    parser.set_defaults(command=_annotate)
    add = parser.add_argument
    classes = DataSpec().classes
    add(
        "site_file",
        type=Path,
        metavar="SITE_FILE",
        help="the file that describes the site's images",
    )
    names = f"the job's classes, in its order (default: those of data.json beside the file, else {' '.join(classes)})"
    add("--classes", nargs="+", default=[], metavar="CLASS", help=names)
    several = "an image may show several classes or none: data.multi_label of the job (default: as data.json says)"
    add("--multi-label", action="store_true", help=several)
    add(
        "--port",
        type=int,
        default=PORT,
        help=f"where the page listens, 0 for any free port (default: {PORT})",
    )
    add(
        "--host",
        default="127.0.0.1",
        help="address of the page (default: 127.0.0.1, for this machine alone)",
    )
    files = parser.add_mutually_exclusive_group()
    export = "write the open questions for another tool and end; FORM is csv, label-studio or monai-label"
    files.add_argument("--export", nargs=2, metavar=("FORM", "TO"), help=export)
    audit = "write every answer ever given to a new CSV, with reader, time and seconds, and end"
    files.add_argument("--audit", type=Path, metavar="CSV", help=audit)
    back = "read the answers in files of another tool and end (default: open the page)"
    files.add_argument("--import", nargs="+", type=Path, metavar="IN", dest="returned", help=back)


def _annotate(options: argparse.Namespace) -> int:
    from fedward.annotation.audit import write_audit
    from fedward.annotation.pictures import Pictures
    from fedward.annotation.queue import queue_of
    from fedward.sites.data_file import read_data_file

    known = read_data_file(options.site_file.parent) or {}
    options.classes = options.classes or [*known.get("classes", DataSpec().classes)]
    kind = kind_of_field(options.multi_label or known.get("multi_label") is True)
    _check(options, kind)
    pictures = Pictures(options.site_file, options.classes, kind)
    queue = queue_of(options.site_file, kind)
    _check_kind(queue, kind)
    if options.export:
        form, path = options.export
        print(queue.export(form, Path(path), options.classes, pictures.png).text())
        return 0
    if options.audit:
        print(f"{options.audit}: {write_audit(queue, options.audit)} answers")
        return 0
    if options.returned:
        return _import(options, queue, pictures)
    return _serve(options, queue, pictures)


def _check_kind(queue: "Queue", kind: LabelKind) -> None:
    """Raise ConfigError where the newest run asks for another kind of answer: its readers' work
    would be misread.
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


def _check(options: argparse.Namespace, kind: LabelKind) -> None:
    from fedward.annotation.handover import FORMS
    from fedward.annotation.records import NO_CLASS
    from fedward.labels import NO_FINDING, SEPARATOR

    different = len(set(options.classes))
    taken = {*NO_CLASS, "skip", "undo", "skipped"}
    if not kind.exclusive:
        taken.add(NO_FINDING)
    unclear = [
        name
        for name in options.classes
        if name.casefold() in taken or name in taken or not _is_plain(name)
    ]
    if not kind.exclusive:
        unclear += [name for name in options.classes if SEPARATOR in name]
    rules = (
        (
            "classes",
            not unclear,
            f"visible words that mean no other answer ({', '.join(sorted(taken))})",
        ),
        (
            "classes",
            different >= 2 and different == len(options.classes),
            "two or more different names",
        ),
        ("export", not options.export or options.export[0] in FORMS, f"one of {', '.join(FORMS)}"),
    )
    for name, kept, expected in rules:
        if not kept:
            where = f"fedward annotate --{name}"
            found = f"{getattr(options, name)}"
            raise ConfigError(where, expected=expected, found=found, remedy="Write it differently.")


def _is_plain(name: str) -> bool:
    """Return whether a reader sees a class as what it is: on one line, none of it hidden, no word
    turned round.
    """
    return name.isprintable() and name == name.strip() and 0 < len(name) <= LONGEST_CLASS


def _import(options: argparse.Namespace, queue: "Queue", pictures: "Pictures") -> int:
    complete = True
    for path in options.returned:
        imported = queue.import_labels(path, options.classes, pictures.ids, names=pictures.names)
        print(imported.text())
        complete &= not (imported.refused or imported.unknown_ids)
    return 0 if complete else 1


def _serve(options: argparse.Namespace, queue: "Queue", pictures: "Pictures") -> int:
    from fedward.annotation.desk import Desk
    from fedward.annotation.page.app import Page
    from fedward.annotation.page.guard import Guard, is_loopback
    from fedward.annotation.page.server import Token, address, listen, serve, server

    desk = Desk(queue, pictures.ids, options.classes)
    with listen(options.host, options.port) as listening:
        token = Token(queue.folder)
        page = Page(desk, pictures, Guard(token.value, options.host))
        for sample_id in desk.unseen():
            complain(f"asked for, but not among the site's images: {sample_id}")
        if not is_loopback(options.host):
            complain(
                "WARNING: other machines can reach this page, and what it sends is not encrypted. "
                "Safer: leave --host away and let each reader use `ssh -L`."
            )
        running = server(page.app(), listening)
        print(f"{pictures.site}: open {address(listening, token.value)} (Ctrl-C stops)", flush=True)
        serve(running)
        token.forget()
    print("Stopped. Every answer that the page acknowledged is saved.")
    return 0
