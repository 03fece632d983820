"""Starting from a finished run: what is taken, what is not, what is recorded and refused."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from fedward.config import DataSpec, Experiment
from fedward.digests import file_digest
from fedward.disk import save_json
from fedward.errors import ConfigError, RunError
from fedward.flare.places import put_into_results
from fedward.lab.local import LocalTransport, Sites
from fedward.nets import build
from fedward.starting_model import Source, Weights, take_over
from fedward.storage.info import Summary
from fedward.storage.model_files import StoredState
from fedward.storage.run_folder import RunFolder
from finished_run import finished_run
from interrupted import interrupted
from run_files import assert_equal
from running import resume_local, run_experiment, run_local
from starting import initial_model
from tiny import tiny

pytestmark = pytest.mark.usefixtures("without_report")

SITES = ["site-1", "site-9"]


def finished(folder: Path, experiment: Experiment, seed: int = 77) -> Path:
    """Write what a finished run leaves, with weights of another seed."""
    return finished_run(
        folder, experiment, initial_model(experiment.model_copy(update={"seed": seed}))[0]
    )


def taken(
    experiment: Experiment, folder: Path
) -> tuple[Mapping[str, torch.Tensor], dict[str, Any]]:
    state, facts, _ = initial_model(experiment, Weights.of(folder))
    assert facts is not None
    return state, facts


def parts(names: list[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


def swin(net: str, method: str = "fedavg", **data: Any) -> Experiment:
    return tiny(method, net=net, data=DataSpec(**{"image_size": 28, **data}))


@pytest.fixture(scope="module")
def selffed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished(tmp_path_factory.mktemp("selffed"), tiny("selffed"))


@pytest.mark.parametrize(
    ("experiment", "unused"),
    [
        (tiny("selffed"), set()),
        (swin("masked_swin_28"), {"projection"}),
        (swin("swin_28"), {"mask_token", "decoder", "projection"}),
        (swin("swin_28", "fedperl"), {"mask_token", "decoder", "projection"}),
    ],
)
def test_whatever_has_the_same_name_and_shape_is_taken(
    selffed: Path, experiment: Experiment, unused: set[str]
) -> None:
    state, facts = taken(experiment, selffed)
    source = StoredState(selffed / "model.safetensors")
    assert set(facts["taken"]) == {name for name in state if state[name].is_floating_point()}
    assert all(torch.equal(state[name], source[name]) for name in facts["taken"])
    assert facts["new"] == []
    assert parts(facts["unused"]) == unused
    assert facts["folder"] == str(selffed)
    assert facts["sha256"] == file_digest(selffed / "model.safetensors")


def test_what_the_other_run_lacks_is_fresh(tmp_path: Path) -> None:
    plain = finished(tmp_path / "plain", swin("swin_28"))
    state, facts = taken(tiny("selffed"), plain)
    fresh, _, _ = initial_model(tiny("selffed"))
    assert parts(facts["taken"]) == {"encoder", "classifier"}
    assert parts(facts["new"]) == {"mask_token", "decoder", "projection"}
    assert all(torch.equal(state[name], fresh[name]) for name in facts["new"])
    assert not any(
        torch.equal(state[name], fresh[name])
        for name in ("classifier.weight", "encoder.patch_embed.proj.weight")
    )


@pytest.mark.parametrize("classes", [("MEL", "NV"), tuple(reversed(DataSpec().classes))])
def test_a_classifier_of_other_classes_is_always_fresh(
    selffed: Path, classes: tuple[str, ...]
) -> None:
    experiment = swin("masked_swin_28", classes=classes)
    state, facts = taken(experiment, selffed)
    assert parts(facts["new"]) == {"classifier"}
    assert "classifier" in parts(facts["unused"])
    assert torch.equal(
        state["classifier.weight"], initial_model(experiment)[0]["classifier.weight"]
    )


def test_auxiliary_classifiers_of_other_classes_are_fresh_too(tmp_path: Path) -> None:
    def mcdal(classes: tuple[str, ...]) -> Experiment:
        return tiny(
            "fedal", options={"sampler": "mcdal"}, data=DataSpec(image_size=16, classes=classes)
        )

    classes = DataSpec().classes
    source = finished(tmp_path / "source", mcdal(classes))
    assert taken(mcdal(classes), source)[1]["new"] == []
    assert parts(taken(mcdal(classes[::-1]), source)[1]["new"]) == {"classifier", "auxiliary"}


def test_psi_is_its_share_of_what_was_taken(tmp_path: Path) -> None:
    """FedMatch splits θ in two; a ψ of other weights would be no part of it."""
    state, facts = taken(tiny("fedmatch"), finished(tmp_path / "fedavg", tiny("fedavg")))
    psi = {name: tensor for name, tensor in state.items() if name.startswith("psi.")}
    assert psi
    for name, tensor in psi.items():
        assert name in facts["new"]
        torch.testing.assert_close(tensor, state[name.removeprefix("psi.")] / 6)
    trained = finished(tmp_path / "fedmatch", tiny("fedmatch"))
    again, _ = taken(tiny("fedmatch"), trained)
    assert_equal(again, dict(StoredState(trained / "model.safetensors")))


def test_a_classifier_that_stayed_at_sites_is_not_taken(tmp_path: Path) -> None:
    source = finished(tmp_path / "source", tiny("selffed"))
    change(source / "model.json", untrained=["classifier.weight", "classifier.bias"])
    _, facts = taken(tiny("selffed"), source)
    assert parts(facts["new"]) == parts(facts["unused"]) == {"classifier"}


def test_other_channels_make_only_the_first_layer_fresh(selffed: Path) -> None:
    _, facts = taken(swin("masked_swin_28", channels=1), selffed)
    assert facts["new"] == ["encoder.patch_embed.proj.weight", "decoder.0.weight", "decoder.0.bias"]


@pytest.mark.parametrize("net", ["small_cnn", "resnet10t"])
def test_a_network_with_nothing_in_common_is_refused(selffed: Path, net: str) -> None:
    with pytest.raises(
        ConfigError, match=r"tensors of the network's encoder, such as .* none of that name"
    ):
        initial_model(swin(net), Weights.of(selffed))


def test_a_classifier_alone_is_no_start(tmp_path: Path) -> None:
    """Also where the network keeps it under another name than its property's."""
    folder = tmp_path / "run"
    experiment = swin("resnet10t")
    head = {
        f"net.fc.{name}": tensor
        for name, tensor in build("resnet10t", 8, seed=9).classifier.state_dict().items()
    }
    finished_run(folder, experiment, head)
    with pytest.raises(ConfigError, match="none of that name"):
        initial_model(experiment, Weights.of(folder))


def test_statistics_are_taken_and_counters_are_not(tmp_path: Path) -> None:
    experiment = swin("resnet10t")
    net = build("resnet10t", 8, seed=5)
    net.train()(torch.rand(4, 3, 28, 28))
    source = finished_run(tmp_path / "run", experiment, net.state_dict())
    fresh = build("resnet10t", 8)
    take_over(fresh, Weights.of(source), experiment.data.classes)
    for name, tensor in fresh.state_dict().items():
        assert torch.equal(tensor, net.state_dict()[name]) is ("num_batches" not in name), name


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def change(file: Path, **values: Any) -> None:
    save_json(file, {**json.loads(file.read_text()), **values})


@pytest.mark.parametrize(
    "damage",
    [
        remove("model.safetensors"),
        remove("model.json"),
        lambda folder: (folder / "model.json").write_text("{}"),
        lambda folder: (folder / "model.json").write_text("no JSON"),
        lambda folder: change(folder / "model.json", format=99),
    ],
)
def test_a_run_without_a_last_model_is_refused(
    selffed: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    shutil.copytree(selffed, tmp_path / "run")
    damage(tmp_path / "run")
    with pytest.raises(
        ConfigError, match=r"--init .*expected model\.safetensors and model\.json of format 3"
    ):
        Weights.of(tmp_path / "run")


def flip(place: int) -> Callable[[Path], None]:
    """Return a change of one bit of the model.

    The byte is counted from the start or, below 0, from the end.
    """

    def damage(folder: Path) -> None:
        content = bytearray((folder / "model.safetensors").read_bytes())
        content[place] ^= 64
        (folder / "model.safetensors").write_bytes(content)

    return damage


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (flip(-3), r"file model\.safetensors: expected SHA-256 [0-9a-f]{64}, on record"),
        (flip(12), r"file model\.safetensors: expected SHA-256 [0-9a-f]{64}, on record"),
        (
            lambda folder: RunFolder.reopen(folder).set_status("failed", Summary()),
            "expected a finished run, found .* failed",
        ),
        (
            lambda folder: change(folder / "run.json", private=[""]),
            "expected a finished run, found .* each site trained alone",
        ),
        (remove("audit.jsonl"), r"expected a finished run, found audit\.jsonl without its end"),
    ],
)
def test_a_model_other_than_a_finished_runs_last_is_refused(
    selffed: Path, tmp_path: Path, damage: Callable[[Path], None], expected: str
) -> None:
    shutil.copytree(selffed, tmp_path / "run")
    damage(tmp_path / "run")
    with pytest.raises(ConfigError, match=f"--init {tmp_path / 'run'}.*{expected}"):
        Weights.of(tmp_path / "run")


def test_weights_alone_are_no_run(selffed: Path, carried: Source) -> None:
    with pytest.raises(RunError, match=r"expected a readable run\.json"):
        Weights.of(carried.files)


def test_the_results_of_a_flare_job_are_a_start(selffed: Path, tmp_path: Path) -> None:
    put_into_results(selffed, tmp_path / "results")
    assert Weights.of(tmp_path / "results").sha256 == Weights.of(selffed).sha256


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_tensors_that_are_not_finite_are_refused_by_name(tmp_path: Path, value: float) -> None:
    experiment = tiny("fedavg")
    state = dict(initial_model(experiment)[0])
    broken = next(reversed(state))
    state[broken] = torch.full_like(state[broken], value)
    source = finished_run(tmp_path / "run", experiment, state)
    with pytest.raises(ConfigError, match=f"tensor {broken} holds NaN or infinity"):
        initial_model(experiment, Weights.of(source))


# --- a run


def short(method: str = "fedavg") -> Experiment:
    options = {"rounds": 2}
    if method == "selffed":
        options |= {"contrastive": "off", "warm_up": 0}
    return tiny(method, options=options, net="masked_swin_28", data=DataSpec(image_size=28))


def test_a_run_records_the_model_it_started_from(
    selffed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_local(short(), tmp_path / "run", sites=SITES, init=selffed)
    info = json.loads((run / "run.json").read_text())
    assert info["init"] == taken(short(), selffed)[1]
    lines = capsys.readouterr().out.splitlines()
    title_end = lines.index("  2 rounds · seed 3")
    assert lines[title_end + 1] == f"weights of {selffed}", "under the title, whole"
    assert lines.count(f"weights of {selffed}") == 1
    assert lines[title_end + 2].startswith("tensors taken: mask_token 1, encoder")
    begun = json.loads((run / "audit.jsonl").read_text().splitlines()[0])
    assert begun["details"]["init"] == info["init"]["sha256"]
    assert str(selffed) not in json.dumps(info["experiment"]), "sites are told no path"
    other = run_local(short(), tmp_path / "other", sites=SITES)
    assert "init" not in json.loads((other / "run.json").read_text())
    ours, theirs = (StoredState(folder / "model.safetensors") for folder in (run, other))
    assert (ours["mask_token"] != theirs["mask_token"]).all(), "which nothing here trains"


def test_weights_that_do_not_fit_leave_no_folder(selffed: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none of that name"):
        run_local(tiny("fedavg"), tmp_path / "run", sites=SITES, init=selffed)
    assert not (tmp_path / "run").exists()


def die(self: RunFolder, round_: int, state: Any) -> None:
    raise KeyboardInterrupt


def test_a_run_killed_before_its_first_state_starts_the_same(
    selffed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = run_local(short(), tmp_path / "straight", sites=SITES, init=selffed)
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "commit", die)
        with pytest.raises(KeyboardInterrupt):
            run_local(short(), tmp_path / "run", sites=SITES, init=selffed)
    resumed = resume_local(tmp_path / "run")
    ours, theirs = (StoredState(folder / "model.safetensors") for folder in (resumed, straight))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_other_weights_than_the_runs_first_are_refused(
    selffed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = finished(tmp_path / "source", short())
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "commit", die)
        with pytest.raises(KeyboardInterrupt):
            run_local(short(), tmp_path / "run", sites=SITES, init=source)
    shutil.copy(selffed / "model.safetensors", source / "model.safetensors")
    with pytest.raises(
        ConfigError, match=r"file model\.safetensors: expected SHA-256 .* on record"
    ) as caught:
        resume_local(tmp_path / "run")
    assert caught.value.found == file_digest(selffed / "model.safetensors")


def test_a_run_that_never_finished_is_no_start(tmp_path: Path) -> None:
    interrupted(short(), tmp_path / "broken", SITES, round_=2, answered=1)
    with pytest.raises(
        ConfigError,
        match=r"--init .*broken: expected model\.safetensors .* the folder of a finished",
    ):
        run_local(short(), tmp_path / "run", sites=SITES, init=tmp_path / "broken")
    assert not (tmp_path / "run").exists()


# --- a copy of the weights, as a job carries it


@pytest.fixture
def carried(selffed: Path, tmp_path: Path) -> Source:
    files = tmp_path / "carried"
    files.mkdir()
    for name in ("model.safetensors", "model.json"):
        shutil.copy(selffed / name, files)
    return Source(files, Weights.of(selffed).facts)


def run_carried(folder: Path, source: Source, resume: bool = False) -> Path:
    transport = LocalTransport(Sites(short(), folder / "sites"), SITES)
    return run_experiment(
        short(), folder, transport, engine_name="flare", init=source, resume=resume
    )


def assert_equal_runs(ours: Path, theirs: Path) -> None:
    """Check that two runs have the same weights, from the same start."""
    states = [StoredState(folder / "model.safetensors") for folder in (ours, theirs)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[1])
    infos = [json.loads((folder / "run.json").read_text()) for folder in (ours, theirs)]
    assert infos[0]["init"] == infos[1]["init"]
    begun = [
        json.loads((folder / "audit.jsonl").read_text().splitlines()[0])["details"]
        for folder in (ours, theirs)
    ]
    assert begun[0]["init"] == begun[1]["init"] == infos[1]["init"]["sha256"]


def test_a_copy_gives_the_same_run_as_the_finished_run(
    selffed: Path, carried: Source, tmp_path: Path
) -> None:
    ours = run_carried(tmp_path / "run", carried)
    theirs = tmp_path / "straight"
    assert_equal_runs(ours, run_local(short(), theirs, sites=SITES, init=selffed))


def overwrite(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"other")


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (
            remove("model.safetensors"),
            r"expected model\.safetensors and model\.json of format 3, found no such file",
        ),
        (
            remove("model.json"),
            r"expected model\.safetensors and model\.json of format 3, found no such file",
        ),
        (overwrite, r"expected SHA-256 [0-9a-f]{64}, on record .* found [0-9a-f]{64}\."),
    ],
)
def test_a_damaged_copy_is_refused_before_a_folder_exists(
    carried: Source, tmp_path: Path, damage: Callable[[Path], None], expected: str
) -> None:
    damage(carried.files)
    with pytest.raises(ConfigError, match=expected) as caught:
        run_carried(tmp_path / "run", carried)
    assert str(carried.files) in str(caught.value)
    assert "exported again" in caught.value.remedy
    assert not (tmp_path / "run").exists()


def test_a_run_without_a_first_state_takes_the_copy_again(
    selffed: Path, carried: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The finished run's own folder may be on another machine."""
    elsewhere = Source(carried.files, {**(carried.facts or {}), "folder": "/no/such/folder"})
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "commit", die)
        with pytest.raises(KeyboardInterrupt):
            run_carried(tmp_path / "run", elsewhere)
    resumed = run_carried(tmp_path / "run", elsewhere, resume=True)
    ours = StoredState(resumed / "model.safetensors")
    straight = run_local(short(), tmp_path / "straight", sites=SITES, init=selffed)
    theirs = StoredState(straight / "model.safetensors")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_run_with_a_finished_round_needs_the_copy_no_more(
    selffed: Path, carried: Source, tmp_path: Path
) -> None:
    interrupted(short(), tmp_path / "run", SITES, round_=2, answered=1, init=selffed)
    shutil.rmtree(carried.files)
    resumed = run_carried(tmp_path / "run", carried, resume=True)
    assert_equal_runs(resumed, run_local(short(), tmp_path / "straight", sites=SITES, init=selffed))


@pytest.mark.parametrize("fresh", [False, True])
def test_a_run_goes_on_only_with_the_weights_it_began_with(
    selffed: Path, carried: Source, tmp_path: Path, fresh: bool
) -> None:
    other = None if fresh else finished(tmp_path / "other", short())
    run_local(short(), tmp_path / "run", sites=SITES, init=other)
    with pytest.raises(
        RunError, match="expected a run from the weights that the job names"
    ) as caught:
        run_carried(tmp_path / "run", carried, resume=True)
    assert ("fresh weights" in caught.value.found) is fresh


def test_pre_training_and_fine_tuning_equal_one_run(tmp_path: Path) -> None:
    """Two runs in a row, of which the first only pre-trains, equal one run of both phases."""
    pretrained = run_local(
        tiny("selffed", options={"rounds": 1, "pretraining_rounds": 1}),
        tmp_path / "one",
        sites=SITES,
    )
    experiment = tiny("selffed", options={"rounds": 1, "pretraining_rounds": 0, "warm_up": 0})
    run = run_local(experiment, tmp_path / "two", sites=SITES, init=pretrained)
    whole = run_local(short("selffed"), tmp_path / "whole", sites=SITES)
    before = [StoredState(folder / "model.safetensors") for folder in (pretrained, whole)]
    assert all(
        torch.equal(before[0][name], before[1][name])
        for name in before[0]
        if name.startswith("decoder.")
    )
    losses = [
        {
            row["name"]
            for row in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
        }
        for folder in (run, whole)
    ]
    assert "loss_reconstruction" not in losses[0]
    assert "loss_reconstruction" in losses[1]
