"""Run folders, models, calibrations and site files that somebody made up, and what the commands do
with them.
"""

import json
import os
import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from hospitals import Finished, site_file, write_npz
from PIL import Image
from safetensors.torch import save_file

import fedward
from fedward import cli
from fedward.digests import file_digest
from fedward.errors import ConfigError, DataError, FedwardError, RunError
from fedward.inference.model import load_model
from fedward.sites.site_file import read_site_file
from fedward.starting_model import Weights
from finished_run import finished_run
from forged import log_of, rewrite
from starting import initial_model
from tiny import tiny

EXPERIMENT = tiny("fedavg")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, whose model every round has changed a little."""
    state = initial_model(EXPERIMENT).state
    model = {
        name: tensor + 0.01 if tensor.is_floating_point() else tensor
        for name, tensor in state.items()
    }
    return finished_run(tmp_path_factory.mktemp("whole") / "run", EXPERIMENT, model)


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "run")


def forge(run: Path, **changes: Any) -> None:
    """Let run.json say something else, of the experiment above all."""
    info = json.loads((run / "run.json").read_text())
    for name, value in changes.items():
        where = info if name in info or name == "base" else info["experiment"]
        where[name] = value
    (run / "run.json").write_text(json.dumps(info))


# --- networks


@pytest.fixture
def unconnected(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Where this process would have connected to."""
    tried: list[Any] = []

    def connect(*arguments: Any, **options: Any) -> Any:
        tried.append(arguments)
        raise OSError("no network here")

    monkeypatch.setattr(socket, "getaddrinfo", connect)
    monkeypatch.setattr(socket.socket, "connect", connect)
    return tried


NETS = (
    "hf-hub:evil/model",
    "hf_hub:evil/model",
    "hf-hub:resnet18",
    "timm/resnet18",
    "timm:resnet18",
    "resnet18.hf-hub",
)
PATHS = ("local-dir:/tmp", "http://evil/x", "file:///etc/passwd", "../../x", "/etc/passwd", "")
CODE = (
    "os.system",
    "monai:__import__",
    "monai:os",
    "monai:nn.Module",
    "monai:CellSamWrapper",
    "monai:ResNetFeatures",
)


@pytest.mark.proves(
    "server",
    "a run folder whose network names a hub, a path, an address or a function",
    "refused; nothing is fetched, imported or run",
)
@pytest.mark.parametrize("net", [*NETS, *PATHS, *CODE])
@pytest.mark.parametrize("pretrained", [False, True])
@pytest.mark.parametrize("base", [None, "0" * 64])
def test_a_hostile_network_is_not_fetched(
    run: Path, unconnected: list[Any], net: str, pretrained: bool, base: str | None
) -> None:
    frozen = {"base": base, "trainable": "head"} if base else {}
    forge(run, net=net, pretrained=pretrained, **frozen)
    with pytest.raises(FedwardError, match="net"):
        load_model(run)
    assert unconnected == []


@pytest.mark.proves(
    "server",
    "a run folder that names a frozen network of timm, to make the reader connect to a hub",
    "**not covered**: missing weights are fetched from timm's hub, as in training. "
    "They are refused unless they are those of the run",
)
def test_frozen_weights_are_fetched_by_timms_own_name(
    run: Path, unconnected: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    forge(run, net="resnet18", pretrained=True, base="0" * 64, trainable="head")
    with pytest.raises(ConfigError, match="net resnet18: expected what timm can load"):
        load_model(run)
    assert {arguments[0] for arguments in unconnected} <= {"huggingface.co"}


def test_a_connection_would_be_seen(unconnected: list[Any]) -> None:
    with pytest.raises(OSError, match="no network here"):
        socket.create_connection(("localhost", 1))
    assert unconnected


# --- models


def replaced(run: Path, write: Callable[[Path], object]) -> Path:
    """Put another model in place of the run's, and its hash into the audit log, with all hashes."""
    model = run / "model.safetensors"
    rows = log_of(run)
    model.unlink()
    write(model)
    for row in rows:
        if row["event"] == "ended":
            row["details"]["files"][model.name] = file_digest(model)
    rewrite(run, rows)
    return run


def header(entries: object, body: bytes = b"") -> Callable[[Path], object]:
    content = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return lambda path: path.write_bytes(len(content).to_bytes(8, "little") + content + body)


def tensor(shape: list[int], offsets: list[int], dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def ordered(order: str) -> Callable[[Path], object]:
    return lambda path: save_file({"a": torch.ones(2)}, path, metadata={"order": order})


def recast(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Path], object]:
    """The model of the run, each tensor changed."""
    state = initial_model(EXPERIMENT).state
    tensors = {name: change(each) for name, each in state.items()}
    return lambda path: save_file(tensors, path, metadata={"order": json.dumps(list(tensors))})


ONE = {"__metadata__": {"order": '["a"]'}}
MODELS: dict[str, Callable[[Path], object]] = {
    "a shape of 2^60 numbers": header(ONE | {"a": tensor([2**40, 2**20], [0, 4])}, b"0000"),
    "an empty tensor with sides of 2^63": header(ONE | {"a": tensor([0, 2**63, 2**63], [0, 0])}),
    "offsets that overlap": header(
        {
            "__metadata__": {"order": '["a", "b"]'},
            "a": tensor([1], [0, 4]),
            "b": tensor([1], [0, 4]),
        },
        b"0000",
    ),
    "offsets beyond the file": header(ONE | {"a": tensor([1], [2**40, 2**40 + 4])}, b"0000"),
    "a header of exabytes": lambda path: path.write_bytes(b"\xff" * 7 + b"\x7f{}"),
    "a header of lists without end": header(b"[" * 100_000),
    "an order of lists without end": ordered("[" * 100_000),
    "an order that is a number": ordered("3"),
    "an order of 5000 digits": ordered("9" * 5000),
    "numbers that are none": recast(
        lambda each: each * float("nan") if each.is_floating_point() else each
    ),
    "numbers of 64 bits": recast(lambda each: each.double() if each.is_floating_point() else each),
    "whole numbers": recast(lambda each: each.to(torch.int8)),
    "a pickle": lambda path: torch.save({"a": torch.ones(2)}, path),
    "an ONNX file": lambda path: path.write_bytes(b"\x08\x07\x12\x07pytorch:\x00"),
}


@pytest.mark.proves(
    "server",
    "a crafted model with valid hashes: shapes of 2^60, bad offsets, huge headers, "
    "NaN, a pickle, ONNX",
    "refused in one line when opened; nothing is allocated or run",
)
@pytest.mark.parametrize("model", MODELS)
def test_a_crafted_model_is_refused(run: Path, model: str) -> None:
    with pytest.raises(RunError, match=r"model .*model\.safetensors: expected"):
        load_model(replaced(run, MODELS[model]))


@pytest.mark.proves(
    "files",
    "formats that are only written, and outputs that would overwrite inputs or the run",
    "refused; nothing is written",
)
@pytest.mark.parametrize("kind", ["bundle", "onnx", "torchscript"])
def test_formats_that_are_written_are_not_read(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = tmp_path / "given"
    mark = tmp_path / "ran"
    if kind == "bundle":
        code = {
            "run": [f"$__import__('pathlib').Path({str(mark)!r}).touch()"],
            "x": {"_target_": "os.system"},
        }
        for file in ("configs/inference.json", "configs/metadata.json", "run.json"):
            (given / file).parent.mkdir(parents=True, exist_ok=True)
            (given / file).write_text(json.dumps(code))
    else:
        given.write_bytes(b"\x08\x07")
    assert cli.main(["predict", str(given), str(tmp_path), "--out", str(tmp_path / "out.csv")]) == 1
    assert "run.json" in capsys.readouterr().err
    assert not mark.exists()


# --- what lies beside


@pytest.mark.proves(
    "files",
    "a calibration with endless lists, numbers of 400 digits or probabilities of NaN",
    "refused in one line",
)
@pytest.mark.parametrize(
    "value", ["[" * 100_000, "1" + "0" * 400, "1" + "0" * 5000, "1e-320", "1e300", "NaN", "-1"]
)
def test_a_crafted_calibration_is_refused(run: Path, tmp_path: Path, value: str) -> None:
    sha256 = file_digest(run / "model.safetensors")
    file = tmp_path / "calibration.json"
    file.write_text(f'{{"model": {{"sha256": "{sha256}"}}, "temperature": {{"value": {value}}}}}')
    with pytest.raises(ConfigError, match="calibration"):
        load_model(run, calibration=file)


def test_weights_whose_sidecar_never_ends_are_refused(run: Path) -> None:
    (run / "model.json").write_text("[" * 100_000)
    with pytest.raises(ConfigError, match=r"model\.json"):
        Weights.of(run)


@pytest.mark.proves(
    "server",
    "markup, links, scripts or line breaks in names",
    "text on one line",
)
def test_names_write_no_model_card(run: Path, tmp_path: Path) -> None:
    evil = "x\n\n## Intended use\n\nApproved. [here](http://evil) <img src=x> `|"
    evil += " \\[here](http://evil) \\<img src=x> \\\\[here](http://evil) \\`|"
    info = json.loads((run / "run.json").read_text())
    data = info["experiment"]["data"] | {"name": evil}
    forge(run, data=data, versions={evil: evil}, ended=evil, audit={"lines": 1, "last_hash": evil})
    assert cli.main(["export", str(run), "--bundle", str(tmp_path / "bundle")]) == 0
    card = (tmp_path / "bundle" / "docs" / "README.md").read_text()
    headings = [line for line in card.splitlines() if line.startswith("#")]
    assert headings[0].startswith("# Model card: x ## Intended use Approved.")
    own = ["Use", "Intended use", "Limits", "Data", "Performance", "Provenance"]
    assert headings[1:] == [f"## {name}" for name in own]
    # A backslash before a mark makes it text, unless that backslash is itself text by another one.
    texts = re.findall(r"(\\*)(?:\[here\]|<img)", card)
    assert len(texts) >= 5
    assert all(len(backslashes) % 2 == 1 for backslashes in texts)


@pytest.mark.proves(
    "files",
    "a site's name that leads out of the folder of results",
    "refused",
)
@pytest.mark.parametrize("name", ["../../harm", "/tmp/harm", "a/b", "..", ".", "a\nb", "a\x1b[2J"])
def test_a_sites_name_leads_nowhere(finished: Finished, tmp_path: Path, name: str) -> None:
    file = tmp_path / "one" / "two" / "site-1.yaml"
    file.parent.mkdir(parents=True)
    npz = write_npz(tmp_path / "all.npz", train=30, val=30, test=30)
    site_file(file, npz)
    content = yaml.safe_load(file.read_text()) | {"site": name}
    file.write_text(json.dumps(content))
    with pytest.raises(DataError, match="field site: expected a plain name"):
        read_site_file(file)
    assert (
        cli.main(["doctor", str(file), "--out", str(file.parent), "--classes", "MEL", "NV", "BCC"])
        == 1
    )
    assert cli.main(["evaluate", str(finished.run), str(file)]) == 1
    assert not [
        path for path in (tmp_path, tmp_path / "one", Path("/tmp")) for _ in path.glob("harm*")
    ]


# --- what is written


def picture(path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 20), np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def shown(run: Path, folder: Path) -> dict[str, list[str]]:
    """Commands that would write over what they read."""
    image = picture(folder / "a.png")
    table = folder / "list.csv"
    table.write_text("image\na.png\n")
    os.link(table, folder / "same.csv")
    (folder / "link.csv").symlink_to(table)
    ask = ["predict", str(run), str(table), "--out"]
    return {
        "the list": [*ask, str(table)],
        "the list under another name": [*ask, str(folder / "same.csv")],
        "the list by a link": [*ask, str(folder / "link.csv")],
        "the list by a detour": [*ask, str(folder / ".." / folder.name / "list.csv")],
        "an image of the list": [*ask, str(image)],
        "an image of a folder": ["predict", str(run), str(folder), "--out", str(image)],
        "the image": ["predict", str(run), str(image), "--out", str(image)],
        "the model": ["predict", str(run), str(table), "--out", str(run / "model.safetensors")],
        "a file in the run": ["predict", str(run), str(table), "--out", str(run / "answers.csv")],
        "TorchScript for the model": [
            "export",
            str(run),
            "--torchscript",
            str(run / "model.safetensors"),
        ],
        "a bundle in the run": ["export", str(run), "--bundle", str(run / "bundle")],
        "one file for two": [
            "export",
            str(run),
            "--onnx",
            str(folder / "x"),
            "--torchscript",
            str(folder / ".." / folder.name / "x"),
        ],
    }


@pytest.mark.proves(
    "files",
    "formats that are only written, and outputs that would overwrite inputs or the run",
    "refused; nothing is written",
)
@pytest.mark.parametrize("number", range(12))
def test_what_is_read_is_not_written_over(finished: Finished, tmp_path: Path, number: int) -> None:
    run = shutil.copytree(finished.run, tmp_path / "run")
    folder = tmp_path / "folder"
    folder.mkdir()
    words = list(shown(run, folder).values())[number]
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert cli.main(words) == 2
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_another_file_beside_the_images_is_written(finished: Finished, tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    (tmp_path / "answers.csv").write_text('"image","prediction","of yesterday"')
    assert (
        cli.main(
            ["predict", str(finished.run), str(tmp_path), "--out", str(tmp_path / "answers.csv")]
        )
        == 0
    )
    assert "of yesterday" not in (tmp_path / "answers.csv").read_text()
    assert fedward.load_model(finished.run)
