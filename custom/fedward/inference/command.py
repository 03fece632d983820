"""``fedward evaluate``, ``predict`` and ``export``. Imports nothing heavy before it runs."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedward.errors import ConfigError
from fedward.terminal import complain, named_column, subcommand

if TYPE_CHECKING:
    from fedward.inference.model import TrainedModel


def add_evaluate(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``evaluate``."""
    add = _about_a_run(parser, _evaluate)
    site_file = "the file that describes a site's data; it need not have joined"
    add("site_file", type=Path, metavar="SITE_FILE", help=site_file)
    split = "images to evaluate: test, val, or train, those with a label (default: test)"
    add("--split", choices=("test", "val", "train"), default="test", help=split)
    groups = "tell only groups of classes apart, such as malignant=MEL,BCC benign=NV,BKL (default: every class)"
    add("--groups", nargs="+", default=[], type=_group, metavar="NAME=CLASS,...", help=groups)
    by = "what the numbers are of; patient: of what the site file calls a group (default: as in the run)"
    add("--by", choices=("image", "patient"), help=by)
    add(
        "--out",
        type=_file,
        metavar="FILE",
        help="JSON file to write (default: SITE-SPLIT-evaluation.json here)",
    )


def add_predict(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``predict``."""
    add = _about_a_run(parser, _predict)
    images = "a folder of images, a CSV that lists some, an npz file, or one image"
    add("images", type=Path, metavar="IMAGES", help=images)
    add(
        "--out",
        type=_file,
        required=True,
        metavar="CSV",
        help="file to write, with a row for each image file",
    )
    site_file = "read files as this site does: its window, frames and slices (default: 2D images, their own windows)"
    add("--site-file", type=Path, metavar="SITE_FILE", help=site_file)
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
    add = _about_a_run(parser, _export)
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
) -> Callable[..., Any]:
    """Let ``command`` carry the parser out, name the run's model; return what adds further
    arguments.
    """
    add = subcommand(parser, command)
    add("run", type=Path, metavar="RUN_FOLDER", help="a finished run")
    last = "the model of the last round (default: of the best round by validation, which report.html describes)"
    add("--last", action="store_true", help=last)
    return add


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
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"a probability is above 0 and at most 1, not {text}")
    return value


def _model(options: argparse.Namespace) -> "TrainedModel":
    from fedward.inference.model import load_model
    from fedward.storage.info import read_info

    summary = read_info(options.run).summary
    if options.last and summary.best_round not in (None, summary.rounds):
        other = f"report.html describes the one after round {summary.best_round}"
        complain(f"this is the model after the last round, {summary.rounds}; {other}")
    return load_model(
        options.run, "last" if options.last else "best", getattr(options, "calibration", None)
    )


def _evaluate(options: argparse.Namespace) -> int:
    from fedward.inference.evaluation import evaluate
    from fedward.inference.whole import require_own_place
    from fedward.inference.words import lines
    from fedward.storage.checkpoint import save_json

    repeated = {
        name for name, _ in options.groups if [each for each, _ in options.groups].count(name) > 1
    }
    if repeated:
        remedy = "Name all its classes at once, separated by commas."
        raise ConfigError(
            "--groups", expected="each group once", found=", ".join(sorted(repeated)), remedy=remedy
        )
    found = evaluate(
        _model(options), options.site_file, options.split, dict(options.groups) or None, options.by
    )
    options.out = options.out or Path(f"{found['site']}-{found['split']}-evaluation.json")
    require_own_place(options.out, options.run, [options.site_file])
    save_json(options.out, found)
    print("\n".join(lines(found)))
    print(f"\n{options.out}")
    return 0


def _predict(options: argparse.Namespace) -> int:
    from fedward.inference.images import images_at
    from fedward.inference.prediction import write_predictions
    from fedward.inference.whole import require_own_place
    from fedward.sites.rendering import PLAIN
    from fedward.sites.site_file import ManifestSite, read_site_file

    listed = options.folder or options.images.parent
    require_own_place(
        options.out, options.run, [options.images, listed, options.site_file, options.calibration]
    )
    model = _model(options)
    rendering = PLAIN
    if options.site_file and isinstance(file := read_site_file(options.site_file), ManifestSite):
        rendering = file.rendering
    asked = images_at(
        options.images, model.experiment.data, dict(options.columns), options.folder, rendering
    )
    outcome = write_predictions(model, asked, options.out, options.refer_below)
    if asked.others:
        complain(f"left out, as their endings are not those of images: {asked.others} of the files")
    refer = "" if options.refer_below is None else f", {outcome.to_refer} to refer"
    means = f" (means over {outcome.images} images)" if outcome.kind == "files" else ""
    kind = outcome.kind.removesuffix("s") if outcome.files == 1 else outcome.kind
    print(f"{outcome.files} {kind}{means}{refer}: {options.out}")
    if outcome.unusable:
        complain(
            f"no prediction for {outcome.unusable} of the {outcome.kind}; the column problem says why"
        )
    return 1 if outcome.unusable else 0


def _export(options: argparse.Namespace) -> int:
    from fedward.inference.bundle import write_bundle
    from fedward.inference.export import require_onnx, write_onnx, write_torchscript
    from fedward.inference.whole import require_own_place

    if not (options.onnx or options.torchscript or options.bundle):
        remedy = "Add --onnx FILE, --torchscript FILE or --bundle FOLDER."
        raise ConfigError("fedward export", expected="a format", found="none", remedy=remedy)
    for out in (options.onnx, options.torchscript, options.bundle):
        if out:
            require_own_place(out, options.run, [options.calibration])
    if (
        options.onnx
        and options.torchscript
        and options.onnx.resolve() == options.torchscript.resolve()
    ):
        found = f"{options.onnx} twice"
        remedy = "Name two files."
        raise ConfigError(
            "--onnx and --torchscript", expected="a file each", found=found, remedy=remedy
        )
    if options.onnx:
        require_onnx()
    model = _model(options)
    for out, write in ((options.onnx, write_onnx), (options.torchscript, write_torchscript)):
        if out:
            write(model, out)
            print(out)
    if options.bundle:
        write_bundle(model, options.run, options.bundle)
        print(options.bundle)
    return 0
