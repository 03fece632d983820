"""Weights in files that each participant keeps: what is loaded, and what is refused."""

from pathlib import Path
from typing import NamedTuple

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import fedward
from fedward.config import Experiment, WeightsFile
from fedward.digests import file_digest
from fedward.errors import ConfigError
from fedward.methods import method_of
from fedward.nets import build
from fedward.nets.weights import WEIGHTS_VARIABLE
from fedward.security.policy import OPEN, Policy
from fedward.security.policy_rules import Circumstances, applied_rules
from run_files import weights
from running import run_local
from starting import initial_model, network_of
from tiny import tiny

SITES = ["site-1", "site-6"]


class Kept(NamedTuple):
    file: str
    sha256: str


def keep(folder: Path, tensors: dict[str, Tensor], name: str = "encoder.safetensors") -> Kept:
    path = folder / name
    save_file({key: tensor.contiguous().clone() for key, tensor in tensors.items()}, path)
    return Kept(name, file_digest(path))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of weights of this machine."""
    monkeypatch.setenv(WEIGHTS_VARIABLE, str(tmp_path))
    return tmp_path


def encoder(net: nn.Module) -> dict[str, Tensor]:
    mine = {id(tensor) for tensor in net.classifier.state_dict(keep_vars=True).values()}  # type: ignore[operator, union-attr]
    return {
        name: tensor
        for name, tensor in net.state_dict(keep_vars=True).items()
        if id(tensor) not in mine
    }


@pytest.mark.parametrize("name", ["resnet18", "small_cnn_gn", "swin_28"])
def test_all_but_the_classifier_comes_from_the_file(name: str, folder: Path) -> None:
    other = build(name, 5, seed=9)
    fresh = build(name, 5, seed=3)
    net = build(name, 5, seed=3, pretrained=keep(folder, other.state_dict()))
    for key, tensor in encoder(net).items():
        assert torch.equal(tensor, other.state_dict()[key]), key
    for key in set(net.state_dict()) - set(encoder(net)):
        assert torch.equal(net.state_dict()[key], fresh.state_dict()[key]), key


def test_files_of_timm_have_timms_names(folder: Path) -> None:
    theirs = timm.create_model("resnet18", num_classes=1000).eval()
    net = build("resnet18", 5, pretrained=keep(folder, theirs.state_dict()))
    assert all(
        torch.equal(tensor, theirs.state_dict()[key[4:]]) for key, tensor in encoder(net).items()
    )


def test_an_encoder_without_a_classifier_is_enough(folder: Path) -> None:
    given = encoder(build("swin_28", 5, seed=9))
    net = build("swin_28", 5, pretrained=keep(folder, given | {"decoder.0.weight": torch.zeros(1)}))
    assert all(torch.equal(tensor, given[name]) for name, tensor in encoder(net).items())


def without(tensors: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    return {key: tensor for key, tensor in tensors.items() if key != name}


FIRST = "features.0.0.weight"


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda tensors: without(tensors, FIRST), "found none"),
        (lambda tensors: tensors | {FIRST: tensors[FIRST][:, :1]}, r"found shape \(16, 1, 3, 3\)"),
        (lambda tensors: tensors | {FIRST: tensors[FIRST] * torch.nan}, "finite numbers of shape"),
    ],
    ids=["missing", "another shape", "not finite"],
)
def test_unfit_tensors_are_named(change, found: str, folder: Path) -> None:
    given = keep(folder, change(dict(build("small_cnn_gn", 5).state_dict())))
    with pytest.raises(ConfigError, match=f"tensor {FIRST}.*{found}"):
        build("small_cnn_gn", 5, pretrained=given)


@pytest.mark.proves(
    "files",
    "a file of weights other than the one a job names",
    "not read: its SHA-256 is compared first",
)
def test_another_file_of_that_name_is_not_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = keep(folder, dict(build("small_cnn_gn", 5).state_dict()))
    (folder / given.file).write_bytes(b"anything")
    with pytest.raises(ConfigError, match=f"expected SHA-256 {given.sha256}"):
        build("small_cnn_gn", 5, pretrained=given)
    monkeypatch.delenv(WEIGHTS_VARIABLE)
    with pytest.raises(ConfigError, match=f"set {WEIGHTS_VARIABLE}"):
        build("small_cnn_gn", 5, pretrained=given)


def test_a_missing_file_says_where_it_should_be(folder: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"weights no\.safetensors: expected a file of that name in the folder"
    ):
        build("small_cnn_gn", 5, pretrained=Kept("no.safetensors", "0" * 64))


@pytest.mark.proves(
    "lead",
    "weights named by a path, or in a file that runs code",
    "refused: a job names a safetensors file and no more",
)
@pytest.mark.parametrize(
    "file", ["../x.safetensors", "/x.safetensors", "x.pth", "a/b.safetensors", ".safetensors", ""]
)
def test_a_job_names_no_path_and_no_pickle(file: str) -> None:
    with pytest.raises(ConfigError, match="pretrained"):
        Experiment.parse(
            {"method": "fedavg", "pretrained": {"file": file, "sha256": "0" * 64}}, "test"
        )


@pytest.mark.parametrize(
    ("rule", "kept"), [("none", False), ("any", True), (("a" * 64,), True), (("b" * 64,), False)]
)
def test_a_site_says_which_files_it_admits(rule: str | tuple[str, ...], kept: bool) -> None:
    experiment = tiny(pretrained=WeightsFile(file="encoder.safetensors", sha256="a" * 64))
    policy = OPEN.model_copy(update={"weights_files": rule})
    (applied,) = [
        row
        for row in applied_rules(policy, experiment, method_of(experiment), Circumstances())
        if row.name == "weights_files"
    ]
    assert (applied.kept, applied.asked) == (kept, f"the job names {'a' * 64}")
    plain = applied_rules(Policy(), tiny(), method_of(tiny()), Circumstances())
    assert next(row for row in plain if row.name == "weights_files").kept


@pytest.mark.usefixtures("without_report")
def test_a_pre_trained_encoder_becomes_a_frozen_one(folder: Path, tmp_path: Path) -> None:
    """SelfFed's encoder of one run is the base of heads in another run.

    Both ends read it from the file.
    """
    selffed = run_local(tiny("selffed"), tmp_path / "selffed", sites=SITES)
    pretrained = weights(selffed)
    (folder / "swin.safetensors").write_bytes((selffed / "model.safetensors").read_bytes())
    given = WeightsFile(file="swin.safetensors", sha256=file_digest(folder / "swin.safetensors"))
    experiment = tiny(
        "fedavg", net="swin_28", data=tiny("selffed").data, pretrained=given, trainable="head"
    )
    run = run_local(experiment, tmp_path / "heads", sites=SITES)
    assert set(weights(run)) == {"classifier.weight", "classifier.bias"}
    whole = fedward.load_model(run).net.state_dict()
    assert all(
        torch.equal(tensor, pretrained[name])
        for name, tensor in whole.items()
        if name.startswith("encoder")
    )
    assert initial_model(experiment).base == network_of(experiment).base


@pytest.mark.usefixtures("without_report")
def test_a_model_that_trained_whole_needs_no_file(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = keep(folder, dict(build("small_cnn_gn", 8, seed=9).state_dict()))
    experiment = tiny("fedavg", net="small_cnn_gn", pretrained=WeightsFile(**given._asdict()))
    run = run_local(experiment, tmp_path / "run", sites=SITES)
    monkeypatch.delenv(WEIGHTS_VARIABLE)
    assert list(fedward.load_model(run).net.state_dict()) == list(weights(run))
