"""ONNX and TorchScript answer as the model itself, for any number of images, or are not written."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hospitals import CLASSES, Finished
from torch import Tensor, nn

import fedward
from fedward import cli
from fedward.config import DataSpec
from fedward.errors import RunError
from fedward.inference.export import TOLERANCE, write_onnx, write_torchscript
from fedward.inference.model import TrainedModel
from fedward.inference.whole import appears_whole
from fedward.nets import build
from tiny import tiny


def model_of(net: nn.Module | str, size: int = 28, trainable: str = "all") -> TrainedModel:
    """Return a model with fresh weights and a temperature."""
    data = DataSpec(classes=CLASSES, image_size=size)
    if isinstance(net, str):
        net = build(net, len(CLASSES), trainable=trainable)
    return TrainedModel(
        getattr(net, "whole", net), tiny("fedavg", data=data), "0" * 64, temperature=1.7
    )


def in_onnx_runtime(file: Path, images: Tensor) -> Tensor:
    session = pytest.importorskip("onnxruntime").InferenceSession(file)
    return torch.from_numpy(session.run(["probabilities"], {"image": images.numpy()})[0])


def assert_alike(found: Tensor, expected: Tensor) -> None:
    assert found.shape == expected.shape
    assert float((found - expected).abs().max()) <= TOLERANCE == 1e-5


NETS = [
    "small_cnn",
    "small_cnn_gn",
    "swin_28",
    "masked_swin_28",
    "tf_mobilenetv3_small_minimal_100",
]


@pytest.mark.parametrize("net", NETS)
def test_torchscript_answers_as_the_model(net: str, tmp_path: Path) -> None:
    model = model_of(net)
    write_torchscript(model, tmp_path / "new" / "model.ts")
    script = torch.jit.load(tmp_path / "new" / "model.ts")
    for number in (1, 2, 7):
        images = torch.rand(number, *model.image_shape)
        assert_alike(script(images), model(images))


@pytest.mark.parametrize(
    ("net", "trainable"), [("small_cnn", "adapters"), ("masked_swin_28", "all")]
)
def test_onnx_answers_as_the_model(net: str, trainable: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="pip install fedward[export]")
    model = model_of(net, trainable=trainable)
    write_onnx(model, tmp_path / "new" / "model.onnx")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["model.onnx"]
    for number in (1, 2, 7):
        images = torch.rand(number, *model.image_shape)
        assert_alike(in_onnx_runtime(tmp_path / "new" / "model.onnx", images), model(images))


def test_files_say_what_they_are_of(finished: Finished, tmp_path: Path, capsys) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="pip install fedward[export]")
    onnx = tmp_path / "model.onnx"
    script = tmp_path / "model.ts"
    words = ["export", finished.run, "--onnx", onnx, "--torchscript", script]
    assert cli.main(list(map(str, words))) == 0
    assert capsys.readouterr().out.split() == [str(onnx), str(script)]
    model = fedward.load_model(finished.run)
    files = {"metadata.json": ""}
    torch.jit.load(script, _extra_files=files)
    inside = json.loads(files["metadata.json"])
    assert inside == onnxruntime.InferenceSession(onnx).get_modelmeta().custom_metadata_map
    assert (inside["model_sha256"], inside["method"]) == (model.sha256, "fedavg")
    assert (json.loads(inside["classes"]), json.loads(inside["temperature"])) == (list(CLASSES), 1)


@pytest.mark.parametrize("form", ["--onnx", "--torchscript"])
def test_no_file_is_written_over(
    form: str, finished: Finished, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model"
    out.write_text("another")
    assert cli.main(["export", f"{finished.run}", form, f"{out}"]) == 2
    assert f"{out}: expected a new file" in capsys.readouterr().err
    assert out.read_text() == "another"


class Stubborn(nn.Module):
    """Answers by the number of images, which a trace does not see."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, images: Tensor) -> Tensor:
        return images.mean((2, 3)) * self.scale * (10.0 if len(images) > 2 else 1.0)


def test_a_trace_that_answers_differently_is_not_written(tmp_path: Path) -> None:
    model = model_of(Stubborn())
    with pytest.raises(
        RunError, match="TorchScript of net small_cnn: expected its probabilities of 3 images"
    ):
        write_torchscript(model, tmp_path / "model.ts")
    pytest.importorskip("onnxscript", reason="pip install fedward[export]")
    with pytest.raises(RunError, match="ONNX of net small_cnn: expected "):
        write_onnx(model, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_ctrl_c_is_not_taken_for_a_fault_of_the_network(tmp_path: Path, monkeypatch) -> None:
    """torch.export handles what the interrupt leaves half done, fails at that, and reports the
    failure.
    """
    pytest.importorskip("onnxscript", reason="pip install fedward[export]")

    def torn(*_: object, **__: object) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise AttributeError("partial graph") from None

    def export(*_: object, **__: object) -> None:
        try:
            torn()
        except AttributeError as error:
            raise RuntimeError("Failed to export the model") from error

    monkeypatch.setattr(torch.onnx, "export", export)
    with pytest.raises(KeyboardInterrupt):
        write_onnx(model_of("small_cnn"), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


class Broken(Stubborn):
    def forward(self, images: Tensor) -> Tensor:
        raise ValueError("the first line\nthe second")


def test_why_torch_cannot_export_a_network_is_said(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="pip install fedward[export]")
    with pytest.raises(RunError, match="found ValueError: the first line\\. Export TorchScript"):
        write_onnx(model_of(Broken()), tmp_path / "model.onnx")


@pytest.mark.parametrize("option", ["--torchscript", "--bundle"])
def test_a_place_that_cannot_be_written_is_named(finished: Finished, option: str, capsys) -> None:
    assert cli.main(["export", str(finished.run), option, "/proc/model"]) == 1
    assert "fedward: /proc/model" in capsys.readouterr().err


def test_nothing_beside_the_result_is_touched(tmp_path: Path) -> None:
    """Whatever the names of a user's own files and folders are."""
    folder = tmp_path / "b.partial"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with appears_whole(tmp_path / "b") as place:
        place.mkdir()
        (place / "model.ts").write_text("new")
    with pytest.raises(FileNotFoundError) as raised, appears_whole(tmp_path / "c") as place:
        (place / "model.ts").write_text("no such folder")
    assert raised.value.filename == str(tmp_path / "c")
    assert (folder / "notes.txt").read_text() == "mine"
    assert (tmp_path / "b" / "model.ts").read_text() == "new"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["b", "b.partial"]


def test_a_disk_that_is_full_is_named_by_the_file(
    finished: Finished, tmp_path: Path, capsys
) -> None:
    file = tmp_path / "model.ts"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        code = cli.main(["export", str(finished.run), "--torchscript", str(file)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert code == 1
    assert capsys.readouterr().err.startswith(f"fedward: {file}: expected a place")
    assert not list(tmp_path.iterdir())


def test_two_formats_need_two_files(finished: Finished, tmp_path: Path, capsys) -> None:
    file = str(tmp_path / "model")
    assert cli.main(["export", str(finished.run), "--onnx", file, "--torchscript", file]) == 2
    assert "expected a file each" in capsys.readouterr().err


def test_missing_packages_are_said_before_anything_is_done(
    tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(
        "fedward.inference.export.find_spec", lambda name: None if name != "onnxruntime" else name
    )
    assert cli.main(["export", "nowhere", "--onnx", str(tmp_path / "model.onnx")]) == 2
    said = capsys.readouterr().err
    assert "found no onnx and no onnxscript" in said
    assert 'pip install "fedward[export]"' in said


def test_a_format_must_be_named(finished: Finished, capsys) -> None:
    assert cli.main(["export", str(finished.run)]) == 2
    assert "--onnx FILE, --torchscript FILE or --bundle FOLDER" in capsys.readouterr().err


def test_commands_begin_without_torch() -> None:
    code = (
        "import sys, fedward.inference.command; "
        "print({'torch', 'monai', 'numpy', 'PIL'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
