"""MONAI's trainer alone: a training imports little, and a later import of MONAI gets all of it."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from fedward.flare.classes import TRAINER
from fedward.speed import monai_trainer
from fedward.training.trainer import Trainer

TRAINING = """
import sys, torch
from fedward.methods.local import Batch, Phase, RoundInputs
from fedward.methods.settings import Settings
from fedward.methods.supervised import Supervised
from fedward.nets import build
from fedward.training.trainer import Trainer, train

batch = Batch(labelled=torch.rand(2, 3, 32, 32), labels=torch.tensor([0, 1]))
inputs = RoundInputs(torch.ones(2))
settings = Settings(images_per_round=2, batch=2)
cpu = torch.device("cpu")
phase = Phase(Supervised(), 0.1)
net = build("small_cnn", 2)
done = train(net, [batch], phase, inputs, settings, device=cpu, aborted=bool)
assert done.steps == 1
"""
NEVER_IMPORTED = {
    "ignite",
    "monai",
    "timm",
    "torchvision",
    "scipy",
    "sklearn",
    "matplotlib",
    "sympy",
    "torch._dynamo",
}
ALL_OF_MONAI = """
import monai.engines, monai.losses, monai.bundle, ignite.metrics
from monai.transforms import Compose, ScaleIntensity, ToTensor

assert build("monai:DenseNet121", 2)(torch.rand(2, 3, 32, 32)).shape == (2, 2)
scaled = Compose([ScaleIntensity(), ToTensor()])(torch.tensor([[1.0, 3.0]]))
assert scaled.tolist() == [[0.0, 1.0]]

# A trainer of MONAI's own, which decollates its outputs and computes one of ignite's metrics.
net = torch.nn.Linear(3, 1)
error = ignite.metrics.MeanSquaredError(lambda out: (out[0]["pred"], out[0]["label"]))
theirs = monai.engines.SupervisedTrainer(
    cpu,
    2,
    train_data_loader=[{"image": torch.rand(2, 3), "label": torch.rand(2, 1)}],
    network=net,
    optimizer=torch.optim.SGD(net.parameters(), 0.1),
    loss_function=torch.nn.MSELoss(),
    key_train_metric={"mse": error},
)
theirs.run()
assert theirs.state.iteration == 2 and theirs.state.metrics["mse"] > 0
assert Trainer.__module__ == monai.engines.Trainer.__module__ == "monai.engines.trainer"
"""


@pytest.fixture(scope="module")
def printed() -> list[str]:
    """Lines of a process that trains, prints what it has imported, and then uses all of MONAI."""
    code = f"{TRAINING}\nprint({NEVER_IMPORTED!r} & set(sys.modules), flush=True)\n{ALL_OF_MONAI}\n"
    code += "print('all of MONAI')"
    process = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=False
    )
    return process.stdout.splitlines()


def test_a_training_imports_little_besides_torch(printed: list[str]) -> None:
    assert printed[0] == "set()"


def test_all_of_monai_can_be_imported_after_a_training(printed: list[str]) -> None:
    assert printed[1:] == ["all of MONAI"]


def test_the_trainer_is_the_one_that_a_job_names() -> None:
    assert f"monai.engines.{Trainer.__name__}" == TRAINER
    assert Trainer.__module__ == "monai.engines.trainer"


def test_a_process_that_has_imported_monai_gets_its_trainer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engines = SimpleNamespace(Trainer=object())
    monkeypatch.setitem(sys.modules, "monai", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "monai.engines", engines)
    assert monai_trainer.load_trainer() is engines.Trainer


def test_an_untried_version_of_monai_is_imported_in_the_ordinary_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ordinary = SimpleNamespace(Trainer=object())
    placeholders_seen = []

    def import_module(name: str) -> object:
        assert name == "monai.engines"
        placeholders_seen.append("monai.data" in sys.modules)
        return ordinary

    for name in list(sys.modules):
        if name.split(".")[0] == "monai":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(monai_trainer.importlib, "import_module", import_module)
    monkeypatch.setattr(monai_trainer.importlib.metadata, "version", lambda package: "1.4.0")
    assert monai_trainer.load_trainer() is ordinary.Trainer
    monkeypatch.setattr(monai_trainer.importlib.metadata, "version", lambda package: "1.6.0")
    assert monai_trainer.load_trainer() is ordinary.Trainer
    assert placeholders_seen == [False, True]


def test_a_placeholder_can_be_named_and_not_be_used() -> None:
    placeholder = monai_trainer._Placeholder("monai.data")
    assert not isinstance(1, placeholder.MetaTensor)
    with pytest.raises(NotImplementedError, match=r"monai\.data\.MetaTensor is not loaded"):
        placeholder.MetaTensor(1)
    assert not hasattr(placeholder, "__path__")
