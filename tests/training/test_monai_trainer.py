"""MONAI's trainer alone: what a training process imports, and that MONAI is whole for whoever
imports it later.
"""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from fedward.training import monai_trainer

TRAINS = """
import sys, torch
from fedward.methods.supervised import Supervised
from fedward.methods.local import Batch, Phase, RoundInputs
from fedward.methods.settings import Settings
from fedward.nets import build
from fedward.training.trainer import Trainer, train

batch = Batch(labelled=torch.rand(2, 3, 32, 32), labels=torch.tensor([0, 1]))
inputs, settings, cpu = RoundInputs(torch.ones(2)), Settings(images_per_round=2, batch=2), torch.device("cpu")
done = train(build("small_cnn", 2), [batch], Phase(Supervised(), 0.1), inputs, settings, device=cpu, aborted=bool)
assert done.steps == 1
"""
UNUSED = {
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
AFTERWARDS = """
import monai.engines, monai.losses, monai.bundle, ignite.metrics
from monai.transforms import Compose, ScaleIntensity, ToTensor

assert build("monai:DenseNet121", 2)(torch.rand(2, 3, 32, 32)).shape == (2, 2)
assert Compose([ScaleIntensity(), ToTensor()])(torch.tensor([[1.0, 3.0]])).tolist() == [[0.0, 1.0]]
data = [{"image": torch.rand(2, 3), "label": torch.rand(2, 1)}]
net, accuracy = torch.nn.Linear(3, 1), ignite.metrics.MeanSquaredError(lambda out: (out[0]["pred"], out[0]["label"]))
settings = {"loss_function": torch.nn.MSELoss(), "optimizer": torch.optim.SGD(net.parameters(), 0.1)}
data = {"train_data_loader": data, "network": net, "key_train_metric": {"mse": accuracy}}
theirs = monai.engines.SupervisedTrainer(cpu, 2, **data, **settings)  # decollates, and computes a metric of ignite's
theirs.run()
assert theirs.state.iteration == 2 and theirs.state.metrics["mse"] > 0
assert Trainer.__module__ == monai.engines.Trainer.__module__ == "monai.engines.trainer"
"""


@pytest.fixture(scope="module")
def said() -> list[str]:
    """What a process says that trains, and then uses all of MONAI."""
    code = (
        f"{TRAINS}\nprint({UNUSED!r} & set(sys.modules), flush=True)\n{AFTERWARDS}\nprint('whole')"
    )
    return subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=False
    ).stdout.splitlines()


def test_who_trains_imports_little_besides_torch(said: list[str]) -> None:
    assert said[0] == "set()"


def test_monai_is_whole_after_a_training(said: list[str]) -> None:
    assert said[1:] == ["whole"]


def test_the_trainer_is_monais_own_where_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = SimpleNamespace(Trainer=object())
    monkeypatch.setitem(sys.modules, "monai", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "monai.engines", engines)
    assert monai_trainer._load() is engines.Trainer


def test_a_trainer_that_needs_more_is_imported_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ordinary = SimpleNamespace(Trainer=object())

    def load(name: str) -> object:
        if isinstance(sys.modules.get("monai.data"), monai_trainer._Named):
            sys.modules["monai.engines.half"] = SimpleNamespace()
            raise ImportError(name)
        assert "monai.engines.half" not in sys.modules
        return ordinary

    for name in [name for name in sys.modules if name.split(".")[0] == "monai"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(monai_trainer.importlib, "import_module", load)
    assert monai_trainer._load() is ordinary.Trainer


def test_what_stands_for_a_module_cannot_be_used() -> None:
    stands = monai_trainer._Named("monai.data")
    assert not isinstance(1, stands.MetaTensor)
    with pytest.raises(NotImplementedError, match=r"monai\.data\.MetaTensor is not loaded"):
        stands.MetaTensor(1)
    assert not hasattr(stands, "__path__")
