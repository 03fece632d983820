"""A method of another package runs as those inside do, and may send only what it declares."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from fedward.errors import ConfigError, RunError
from fedward.methods.aggregation import mean_of
from fedward.methods.algorithm import Algorithm, ServerState
from fedward.methods.local import Batch, Losses, Objective, Phase, RoundInputs
from fedward.methods.participants import draw_participants
from fedward.methods.requirements import Requirements, Sends, TensorRules
from fedward.methods.settings import Settings
from fedward.methods.workflow import ClientTask, Exchange, Federation, Rounds
from fedward.registry import METHODS
from fedward.runs.run import Run
from fedward.storage.model_files import StoredState
from fedward.storage.run_folder import RunFolder
from run_files import rows
from running import run_local
from tiny import tiny

SITES = ["site-1", "site-2", "site-9"]
SENDS = Sends(
    losses=frozenset({"loss_error", "loss_l1"}),
    logs=frozenset({"sparsity"}),
    records=frozenset({"sparsities"}),
)
TASKS = frozenset({"shrink"})
DECLARED = Requirements(tasks=TASKS, sends=SENDS)


class LassoSettings(Settings):
    penalty: float = Field(1e-3, ge=0.0)


class Sparse(Objective[int]):
    """Cross-entropy and the sum of all absolute weights; its state counts the steps."""

    def __init__(self, penalty: float) -> None:
        self._penalty = penalty

    def init(self, net: nn.Module, inputs: RoundInputs) -> int:
        return 0

    def losses(self, net: nn.Module, batch: Batch, inputs: RoundInputs, state: int) -> Losses:
        assert batch.labelled is not None
        assert batch.labels is not None
        absolute = torch.stack([parameter.abs().sum() for parameter in net.parameters()]).sum()
        terms = {
            "loss_error": F.cross_entropy(net(batch.labelled), batch.labels),
            "loss_l1": self._penalty * absolute,
        }
        small = (
            torch.cat([parameter.detach().flatten() for parameter in net.parameters()]).abs() < 1e-3
        )
        return Losses(terms, {"sparsity": small.float().mean()})

    def after_step(self, net: nn.Module, batch: Batch, losses: Losses, state: int) -> int:
        return state + 1

    def remember(self, state: int) -> dict[str, dict[str, Tensor]]:
        return {"steps": {"taken": torch.tensor([float(state)])}}


@dataclass
class LassoState(ServerState):
    norms: dict[str, float] = field(default_factory=dict)


class Lasso(Algorithm[LassoState]):
    """Averages sites by their labelled images, and notes how large the mean is."""

    settings_type = LassoSettings
    state_type = LassoState

    def __init__(self, settings: LassoSettings) -> None:
        self.settings = settings
        self.requirements = DECLARED
        self.weight = lambda task, labelled, unlabelled, steps: labelled

    def phases(self, task: str, round_: int, labelled: int) -> Sequence[Phase]:
        return [Phase(Sparse(self.settings.penalty), self.settings.learning_rate)]

    def rounds(self, state: LassoState, federation: Federation) -> Rounds:
        while state.round < self.settings.rounds:
            round_ = state.round + 1
            sites = draw_participants(
                federation.sites, self.settings.participants, federation.seed, round_
            )
            replies = yield Exchange(
                round_, state.model, {site: ClientTask("shrink") for site in sites}
            )
            least = federation.effective_replies
            state.model = mean_of(replies, "shrink", self.weight, self.settings, state.model, least)
            state.norms[str(round_)] = float(
                sum(tensor.double().abs().sum() for tensor in state.model.values())
            )
            federation.record("sparsities", {"round": round_, "norm": state.norms[str(round_)]})
            state.round = round_


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS.registered, "lasso", Lasso)


def run(folder: Path, **options: Any) -> Path:
    return run_local(tiny("lasso", options={"participants": None, **options}), folder, sites=SITES)


def test_a_new_method_needs_no_line_of_the_runtime(tmp_path: Path) -> None:
    folder = run(tmp_path / "run")
    assert RunFolder.reopen(folder).finished
    names = {row["name"] for row in rows(folder, "metrics") if row["split"] == "train"}
    assert names == {
        "loss",
        "loss_error",
        "loss_l1",
        "sparsity",
        "seconds",
        "labelled",
        "unlabelled",
    }
    assert [row["round"] for row in rows(folder, "sparsities")] == [1, 2, 3]
    assert not (folder / "peers.jsonl").exists(), "it has not declared that one"
    assert len(Run.load(folder).rounds) == 3
    assert (folder / "report.html").exists()
    state = json.loads((folder / "rounds" / "00003" / "state.json").read_text())["numbers"]
    assert list(state["norms"].values()) == [row["norm"] for row in rows(folder, "sparsities")]
    newest = max((folder / "sites").glob("site-1/memory/*/*.safetensors"))
    assert StoredState(newest)["steps/taken"].item() == 2


def test_its_own_loss_does_what_it_says(tmp_path: Path) -> None:
    """A hundred times the penalty gives smaller weights."""
    norms = [
        rows(run(tmp_path / str(p), penalty=p, learning_rate=0.01), "sparsities")[-1]["norm"]
        for p in (0, 0.1)
    ]
    assert norms[1] < 0.9 * norms[0]


@pytest.mark.proves(
    "lead",
    "a method that sends a number it has not declared",
    "refused by the site, by name",
)
@pytest.mark.parametrize(("kind", "name"), [("losses", "loss_l1"), ("logs", "sparsity")])
def test_what_is_not_declared_does_not_leave_a_site(tmp_path, monkeypatch, kind, name):
    fewer_names = replace(SENDS, **{kind: getattr(SENDS, kind) - {name}})
    monkeypatch.setitem(globals(), "DECLARED", Requirements(tasks=TASKS, sends=fewer_names))
    with pytest.raises(RunError, match="3 exchanges in a row"):
        run(tmp_path / "run")
    for row in rows(tmp_path / "run", "rounds"):
        assert set(row["failed"]) == set(SITES)
        assert all(", train: expected only loss" in reason for reason in row["failed"].values())
        assert not any(name in reason for reason in row["failed"].values()), (
            "what was found stays at the site"
        )


@pytest.mark.proves(
    "lead",
    "a method that gives sites a task it has not declared",
    "refused by the site, by name",
)
def test_a_task_that_is_not_declared_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "DECLARED", Requirements(sends=SENDS))
    with pytest.raises(
        RunError, match="expected one of idle, train, as in the job, found 'shrink'"
    ):
        run(tmp_path / "run")


def test_a_record_that_is_not_declared_is_refused(tmp_path, monkeypatch):
    without_records = replace(SENDS, records=frozenset())
    monkeypatch.setitem(globals(), "DECLARED", Requirements(tasks=TASKS, sends=without_records))
    with pytest.raises(
        ConfigError, match=r"log 'sparsities' of the run folder: .* that lasso has not declared"
    ):
        run(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "failed"


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ({"losses": {"l1"}}, "l1"),
        ({"losses": {"loss_ids/7"}}, "loss_ids/7"),
        ({"logs": {"loss"}}, "loss"),
        ({"records": {"metrics"}}, "metrics"),
        ({"records": {"../x"}}, r"\.\./x"),
    ],
)
def test_names_that_cannot_be_are_refused(names, found):
    with pytest.raises(ConfigError, match=f"requirements cannot name {found}\\."):
        Sends(**{kind: frozenset(values) for kind, values in names.items()})


def test_what_is_private_or_excluded_is_withheld_once():
    rules = TensorRules(private=("head.",), excluded={"train": ("decoder.", "head.")})
    assert rules.withheld("train") == ("head.", "decoder.")
    assert rules.withheld("other") == ("head.",)
