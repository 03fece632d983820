"""``fedward evaluate``, ``predict`` and ``export``. Imports nothing heavy before it runs."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fedward import private
from fedward.errors import ConfigError
from fedward.terminal import complain, from_0_to_1, named_column
from fedward.text import count

if TYPE_CHECKING:
    from fedward.inference.model import TrainedModel


def add_evaluate(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``evaluate``."""
    _about_a_run(parser, _evaluate)
    add = parser.add_argument
    site_file = "the file that describes a site's data; it need not have joined"
    add("site_file", type=Path, metavar="SITE_FILE", help=site_file)
    split = "images to evaluate: test, val, or train, those with a label (default: test)"
    add("--split", choices=("test", "val", "train"), default="test", help=split)
    add(
        "--groups",
        nargs="+",
        default=[],
        type=_group,
        metavar="NAME=CLASS,...",
        help="tell only groups of classes apart, such as malignant=MEL,BCC benign=NV,BKL "
        "(default: every class)",
    )
    add(
        "--by",
        choices=("image", "patient"),
        help="what the numbers are of; patient: of what the site file calls a group "
        "(default: as in the run)",
    )
    add(
        "--out",
        type=_file,
        metavar="FILE",
        help="JSON file to write (default: SITE-SPLIT-evaluation.json here)",
    )


def add_predict(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``predict``."""
    _about_a_run(parser, _predict)
    add = parser.add_argument
    images = "a folder of images, a CSV that lists some, an npz file, or one image"
    add("images", type=Path, metavar="IMAGES", help=images)
    add(
        "--out",
        type=_file,
        required=True,
        metavar="CSV",
        help="file to write, with a row for each image file",
    )
    add(
        "--site-file",
        type=Path,
        metavar="SITE_FILE",
        help="read files as this site does: its window, frames, slices and fit "
        "(default: 2D images, their own windows, squashed to squares)",
    )
    refer = (
        "mark images whose largest probability is below P, for a person to look at (default: none)"
    )
    add("--refer-below", type=_probability, metavar="P", help=refer)
    _add_calibration(parser)
    columns = "a CSV's: the column of the image files (default: by known names)"
    add("--columns", nargs="+", default=[], type=named_column, metavar="image=NAME", help=columns)
    add(
        "--folder",
        type=Path,
        metavar="FOLDER",
        help="folder of the images that a CSV lists (default: the CSV's)",
    )


def add_export(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``export``."""
    _about_a_run(parser, _export)
    add = parser.add_argument
    add(
        "--onnx",
        type=_file,
        metavar="FILE",
        help='write an ONNX file; needs: pip install "fedward[export]"',
    )
    add("--torchscript", type=_file, metavar="FILE", help="write a TorchScript file")
    add(
        "--bundle",
        type=Path,
        metavar="FOLDER",
        help="write a MONAI bundle with a model card into a new folder",
    )
    _add_calibration(parser)


def _about_a_run(
    parser: argparse.ArgumentParser, command: Callable[[argparse.Namespace], int]
) -> None:
    """Set what a parser runs, and add the arguments that name a model."""
    parser.set_defaults(command=command)
    add = parser.add_argument
    add("run", type=Path, metavar="RUN_FOLDER", help="a finished run")
    add(
        "--last",
        action="store_true",
        help="the model of the last round (default: of the best round by validation, which "
        "report.html describes)",
    )


def _add_calibration(parser: argparse.ArgumentParser) -> None:
    about = "what `fedward evaluate` wrote about this model: use its temperature (default: none)"
    parser.add_argument("--calibration", type=Path, metavar="FILE", help=about)


def _file(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("name a file to write")
    if Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder: name a file to write")
    return Path(text)


def _group(text: str) -> tuple[str, list[str]]:
    name, equals, members = text.partition("=")
    if not (name and equals and members):
        raise argparse.ArgumentTypeError(f"write for example malignant=MEL,BCC, not {text}")
    return name, members.split(",")


def _probability(text: str) -> float:
    value = from_0_to_1(text)
    if value == 0:
        raise argparse.ArgumentTypeError("expected a number above 0 and at most 1, found 0")
    return value


def _model(options: argparse.Namespace) -> "TrainedModel":
    from fedward.inference.model import load_model
    from fedward.storage.info import read_info

    info = read_info(options.run)
    summary = info.summary
    if any(info.synthetic.values()):
        complain(
            "the model was trained on synthetic images: its answers say nothing about patients"
        )
    if options.last and summary.best_round not in (None, summary.rounds):
        complain(
            f"this is the model after the last round, {summary.rounds}; report.html describes the "
            f"one after round {summary.best_round}"
        )
    which: Literal["best", "last"] = "last" if options.last else "best"
    round_ = summary.rounds if options.last else summary.best_round
    if round_ == 0 and info.init:
        complain(
            "this is the model of round 0, which the run started from: no round of it was better"
        )
    elif round_ == 0:
        complain(
            "this is the model of round 0, which has never been trained: its answers are those of "
            "random weights"
        )
    return load_model(options.run, which, getattr(options, "calibration", None))


def _evaluate(options: argparse.Namespace) -> int:
    from fedward.inference.evaluation import evaluate, is_evaluation
    from fedward.inference.whole import appears_whole, require_own_place
    from fedward.inference.words import lines
    from fedward.sites import require_one_site
    from fedward.sites.site_file import read_site_file

    names = [name for name, _ in options.groups]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ConfigError(
            "--groups",
            "Name all its classes at once, separated by commas.",
            expected="each group once",
            found=", ".join(repeated),
        )
    require_one_site(options.site_file)
    model = _model(options)
    if options.out is None:  # Set here, because an error of the disk names it.
        site = read_site_file(options.site_file).site
        options.out = Path(f"{site}-{options.split}-evaluation.json")
    require_own_place(options.out, options.run, [options.site_file], is_evaluation)
    groups = dict(options.groups) or None
    evaluation = evaluate(model, options.site_file, options.split, groups, options.by)
    with appears_whole(options.out) as partial, open(partial, "wb", opener=private.opener) as file:
        file.write(f"{json.dumps(evaluation, indent=1)}\n".encode())
    print("\n".join(lines(evaluation)))
    print(f"\n{options.out}")
    return 0


def _predict(options: argparse.Namespace) -> int:
    from fedward.inference.images import images_at
    from fedward.inference.prediction import are_predictions, write_predictions
    from fedward.inference.whole import require_own_place
    from fedward.sites import require_one_site
    from fedward.sites.rendering import PLAIN
    from fedward.sites.site_file import read_site_file

    folder = options.folder or options.images.parent
    read = [options.images, folder, options.site_file, options.calibration]
    require_own_place(options.out, options.run, read, are_predictions)
    model = _model(options)
    rendering = PLAIN
    if options.site_file:
        require_one_site(options.site_file)
        rendering = read_site_file(options.site_file).rendering
    asked = images_at(
        options.images, model.experiment.data, dict(options.columns), options.folder, rendering
    )
    outcome = write_predictions(model, asked, options.out, options.refer_below)
    for note in [*asked.left_out.notes(), *asked.notes]:
        complain(note)
    asked_about = count(outcome.files, outcome.kind.removesuffix("s"))
    summary = asked_about
    if outcome.kind == "files":
        summary += f" (means over {count(outcome.images, 'image')})"
    if options.refer_below is not None:
        summary += f", {outcome.to_refer} to refer"
    print(f"{summary}: {options.out}")
    if outcome.unusable:
        complain(
            f"no prediction for {outcome.unusable} of {asked_about}; the column problem says why"
        )
        return 1
    return 0


def _export(options: argparse.Namespace) -> int:
    from fedward.inference.bundle import write_bundle
    from fedward.inference.export import require_onnx, write_onnx, write_torchscript
    from fedward.inference.whole import require_own_place

    if not (options.onnx or options.torchscript or options.bundle):
        raise ConfigError(
            "fedward export",
            "Add --onnx FILE, --torchscript FILE or --bundle FOLDER.",
            expected="a format",
            found="none",
        )
    for out in (options.onnx, options.torchscript, options.bundle):
        if out:
            require_own_place(out, options.run, [options.calibration])
    both = options.onnx and options.torchscript
    if both and options.onnx.resolve() == options.torchscript.resolve():
        raise ConfigError(
            "--onnx and --torchscript",
            "Name two files.",
            expected="a file each",
            found=f"{options.onnx} twice",
        )
    if options.onnx:
        require_onnx()
    model = _model(options)
    if options.onnx:
        write_onnx(model, options.onnx)
        print(options.onnx)
    if options.torchscript:
        write_torchscript(model, options.torchscript)
        print(options.torchscript)
    if options.bundle:
        write_bundle(model, options.run, options.bundle)
        print(options.bundle)
    return 0
