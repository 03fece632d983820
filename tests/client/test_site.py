"""One site: its phases in turn, what it declines, and that repeated requests change no answer."""

import shutil
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from asking import RUN, requests
from clients import new_client
from fedward.client.client import Client
from fedward.methods.class_weights import class_weights
from fedward.methods.fedavg import FedAvg
from fedward.methods.local import Batch, Losses, Objective, Phase, RoundInputs, Stateless, Uses
from fedward.methods.supervised import Supervised
from fedward.methods.workflow import ClientTask, Exchange
from fedward.model_state import State
from fedward.nets import build
from fedward.protocol.messages import Answer
from fedward.protocol.wire import Message
from fedward.seeds import Draws
from fedward.training.batches import Pixels, RoundBatches
from fedward.training.trainer import train
from fedward.views import VIEWS, Views
from isolated import SITES, isolated, write_sites
from tiny import tiny


def start(experiment, seed: int = 3) -> dict[str, Tensor]:
    net = build(experiment.net, len(experiment.data.classes), experiment.data.channels, seed=seed)
    return {key: value.clone() for key, value in net.state_dict().items()}


def same(a: State, b: State) -> bool:
    return list(a) == list(b) and all(torch.equal(a[key], b[key]) for key in a)


def moved(a: State, b: State) -> bool:
    return any(not torch.equal(a[key], b[key]) for key in a if a[key].is_floating_point())


def phased(monkeypatch: pytest.MonkeyPatch, *phases: Callable[[], Phase]) -> None:
    monkeypatch.setattr(
        FedAvg, "phases", lambda self, task, round_, labelled: [make() for make in phases]
    )


def stay() -> bool:
    return False


@pytest.mark.proves(
    "lead",
    "a job that asks for a million threads",
    "not valid: site files set the number",
)
def test_a_job_cannot_ask_for_threads():
    with pytest.raises(ValueError, match=r"threads\n +Extra inputs are not permitted"):
        tiny("fedavg", threads=10**6)


# --- phases


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_phases_share_one_net_with_own_rates_and_draws(tmp_path, monkeypatch, optimizer):
    """Each is trained as if by itself, from the weights that the phase before it left."""
    phased(
        monkeypatch,
        lambda: Phase(Supervised(), 0.01, ("first",)),
        lambda: Phase(Supervised(), 0.002),
    )
    experiment = tiny(
        "fedavg", options={"optimizer": optimizer, "class_weighting": "median_frequency"}
    )
    site = new_client("site-1", experiment, tmp_path).learner
    model = start(experiment)
    trained, steps, means = site.train(model, [], 2)

    device = site.networks.device
    settings = site.algorithm.settings
    labelled = Pixels.of(site.images.data.labelled, device)
    net = build(experiment.net, 8, 3, seed=3)
    # The site's net has this layout, and the kernels of another one round differently.
    net = net.to(device, memory_format=torch.channels_last)
    label_counts = torch.bincount(labelled.labels.cpu(), minlength=8)
    inputs = RoundInputs(class_weights(label_counts).to(device))
    for rate, stream in ((0.01, ("site-1", 2, "first")), (0.002, ("site-1", 2))):
        batches = RoundBatches(labelled, None, [], settings, Draws(experiment.seed), stream)
        last = train(
            net, batches, Phase(Supervised(), rate), inputs, settings, device=device, aborted=stay
        )
    assert steps == 4
    for key, value in net.state_dict().items():
        torch.testing.assert_close(trained[key], value.cpu(), msg=key)
    assert set(means) == {"loss", "loss_supervised", "seconds"}
    assert means["loss"] == pytest.approx(last.means["loss"], rel=1e-5), (
        "the last phase's loss is the round's"
    )
    assert moved(model, trained)


class _Watching(Objective[None]):
    """Learns from nothing it sees, and records the inputs and batches that it was given."""

    def __init__(self, uses: Uses, seen: list[RoundInputs | Batch]) -> None:
        self.uses = uses
        self.seen = seen

    def init(self, net: nn.Module, inputs: RoundInputs) -> None:
        self.seen.append(inputs)

    def losses(self, net: nn.Module, batch: Batch, inputs: RoundInputs, state: None) -> Losses:
        self.seen.append(batch)
        return Losses({"loss_supervised": sum(parameter.sum() for parameter in net.parameters())})


def watched_round(
    tmp_path, monkeypatch, uses: Uses, round_: int = 1, **options
) -> tuple[Client, RoundInputs, list[Batch]]:
    """Train a round, and return the site, and the inputs and batches that its objective saw."""
    seen: list[RoundInputs | Batch] = []
    phased(monkeypatch, lambda: Phase(_Watching(uses, seen), 1e-3))
    experiment = tiny("fedavg", options=options)
    site = new_client("site-1", experiment, tmp_path)
    site.learner.train(start(experiment), [], round_)
    inputs, *batches = seen
    return site, inputs, batches


@pytest.mark.parametrize(
    ("labelled", "unlabelled", "second"),
    [
        (True, "none", "none"),
        (False, "none", "none"),
        (False, "unlabelled", "weak"),
        (True, "unlabelled", "strong"),
        (True, "all", "none"),
        (False, "all", "strong"),
        (True, "all", "weak"),
    ],
)
def test_an_objective_sees_what_it_uses_and_nothing_else(
    tmp_path, monkeypatch, labelled, unlabelled, second
):
    """With views that can be undone: weak ones are the images, strong ones their negatives."""
    uses = Uses(labelled=labelled, unlabelled=unlabelled, second_view=second)
    seen: list[RoundInputs | Batch] = []
    phased(monkeypatch, lambda: Phase(_Watching(uses, seen), 1e-3))
    recipe = Views(lambda images, generator: images.clone(), lambda images, generator: 1 - images)
    monkeypatch.setitem(VIEWS.registered, "upright", recipe)
    experiment = tiny("fedavg", options={"images_per_round": None})
    experiment = experiment.model_copy(
        update={"data": experiment.data.model_copy(update={"views": "upright"})}
    )
    site = new_client("site-1", experiment, tmp_path)
    _, steps, _ = site.learner.train(start(experiment), [], 1)
    data = site.data
    assert len(data.labelled) != len(data.unlabelled) > 0
    if not labelled and unlabelled == "none":
        assert seen == []
        assert steps == 0
        return

    def pictures(parts: list[Tensor]) -> set[bytes]:
        return {
            (image.permute(1, 2, 0) * 255).round().byte().cpu().numpy().tobytes()
            for part in parts
            for image in part
        }

    def whole(*names: str) -> set[bytes]:
        return {image.tobytes() for name in names for image in getattr(data, name).pixels[:]}

    batches = seen[1:]
    assert len(batches) == steps
    if labelled:
        assert pictures([batch.labelled for batch in batches]) == whole("labelled")
    else:
        assert all(batch.labelled is batch.labels is None for batch in batches)
    names_by_kind = {
        "none": [],
        "unlabelled": ["unlabelled"],
        "all": ["labelled", "unlabelled"],
    }
    names = names_by_kind[unlabelled]
    if names:
        assert pictures([batch.weak for batch in batches]) == whole(*names)
        for batch in batches:
            if second == "none":
                assert batch.strong is None
            else:
                assert torch.equal(batch.strong, batch.weak if second == "weak" else 1 - batch.weak)
    else:
        assert all(batch.weak is batch.strong is None for batch in batches)


def test_pictures_are_varied_by_the_recipe_of_the_data(tmp_path, monkeypatch):
    drawn: list[str] = []

    def recorded_view(name: str):
        def view(images: Tensor, generator: torch.Generator) -> Tensor:
            drawn.append(name)
            return images.clone()

        return view

    for name in VIEWS:
        monkeypatch.setitem(
            VIEWS.registered,
            name,
            Views(recorded_view(f"{name} weak"), recorded_view(f"{name} strong")),
        )
    for name in ("rotation_invariant", "mirrored", "upright"):
        drawn.clear()
        experiment = tiny("ssfl")
        experiment = experiment.model_copy(
            update={"data": experiment.data.model_copy(update={"views": name})}
        )
        new_client("site-1", experiment, tmp_path).learner.train(start(experiment), [], 1)
        assert drawn == [f"{name} weak", f"{name} weak", f"{name} strong"]


def test_a_second_weak_view_is_of_another_draw(tmp_path, monkeypatch):
    """The first is the one that an objective without a second view sees."""
    weak = [
        batch.weak
        for batch in watched_round(tmp_path, monkeypatch, Uses(unlabelled="unlabelled"))[2]
    ]
    twice = watched_round(tmp_path, monkeypatch, Uses(unlabelled="unlabelled", second_view="weak"))[
        2
    ]
    strong = watched_round(
        tmp_path, monkeypatch, Uses(unlabelled="unlabelled", second_view="strong")
    )[2]
    for first, both, other in zip(weak, twice, strong, strict=True):
        assert torch.equal(both.weak, first)
        assert torch.equal(other.weak, first)
        assert not torch.equal(both.strong, both.weak)
        assert not torch.equal(both.strong, other.strong)


@pytest.mark.parametrize(("round_", "before"), [(1, 0), (2, 2), (7, 12)])
def test_steps_are_counted_from_the_first_round(tmp_path, monkeypatch, round_, before):
    """Two steps a round, as if the site had been there in each."""
    assert watched_round(tmp_path, monkeypatch, Uses(), round_)[1].steps_before == before


def test_steps_before_follow_the_batches_of_this_site(tmp_path, monkeypatch):
    site, inputs, batches = watched_round(tmp_path, monkeypatch, Uses(), 4, images_per_round=None)
    assert len(batches) == len(site.data.labelled) // 8
    assert inputs.steps_before == 3 * len(batches)


def test_classes_are_weighted_by_the_sites_own_labels(tmp_path, monkeypatch):
    site, inputs, _ = watched_round(
        tmp_path, monkeypatch, Uses(), class_weighting="median_frequency"
    )
    counts = np.bincount(site.data.labelled.labels, minlength=8)
    assert torch.equal(inputs.class_weights.cpu(), class_weights(torch.tensor(counts)))
    assert len(inputs.class_weights.unique()) > 2
    _, plain, _ = watched_round(tmp_path, monkeypatch, Uses())
    assert plain.class_weights.tolist() == [1.0] * 8


def test_without_a_memory_a_phase_gets_an_empty_one(tmp_path, monkeypatch):
    assert watched_round(tmp_path, monkeypatch, Uses())[1].memory == {}


def test_the_phases_of_a_round_share_the_sites_memory(tmp_path, monkeypatch):
    seen: list[RoundInputs | Batch] = []

    def watched_phase() -> Phase:
        return Phase(_Watching(Uses(), seen), 1e-3)

    phased(monkeypatch, watched_phase, watched_phase)
    experiment = tiny("fedavg")
    memory = {"teacher": {"w": torch.ones(2)}}
    new_client("site-1", experiment, tmp_path).learner.train(
        start(experiment), [], 1, memory=memory
    )
    inputs = [item for item in seen if isinstance(item, RoundInputs)]
    assert len(inputs) == 2
    assert all(phase_inputs.memory is memory for phase_inputs in inputs)


# --- draws


def test_parts_of_a_round_draw_other_numbers(tmp_path):
    experiment = tiny("ssfl")
    site = new_client("site-1", experiment, tmp_path)
    model = start(experiment)
    trained = [site.learner.train(model, [], 2, part=part)[0] for part in (0, 1, 2)]
    assert moved(trained[0], trained[1])
    assert moved(trained[1], trained[2])
    assert moved(trained[0], trained[2])
    assert same(trained[1], site.learner.train(model, [], 2, part=1)[0])
    assert same(trained[0], site.learner.train(model, [], 2)[0])


def test_the_global_generator_is_left_alone(tmp_path):
    experiment = tiny("ssfl")
    site = new_client("site-1", experiment, tmp_path)
    model = start(experiment)
    trained = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        chance = torch.get_rng_state()
        trained.append(site.learner.train(model, [], 1)[0])
        assert torch.equal(torch.get_rng_state(), chance)
    assert same(*trained)


class _Dropping(Stateless):
    """Draws from torch's own generator, as a layer of dropout does, and notes what it drew."""

    def __init__(self, drawn: list[tuple[float, ...]]) -> None:
        self.drawn = drawn

    def losses(
        self, net: nn.Module, batch: Batch, inputs: RoundInputs, state: None = None
    ) -> Losses:
        self.drawn.append(tuple(torch.rand(4).tolist()))
        return Losses({"loss_own": sum(parameter.sum() for parameter in net.parameters())})


def test_dropout_is_drawn_by_secret_site_round_and_part(tmp_path, monkeypatch):
    drawn: list[tuple[float, ...]] = []
    phased(monkeypatch, lambda: Phase(_Dropping(drawn), 1e-3))
    experiment = tiny("fedavg", options={"images_per_round": 8})
    learner = new_client("site-1", experiment, tmp_path).learner
    model = start(experiment)
    for seed in (1, 2):
        torch.manual_seed(seed)
        learner.train(model, [], 1)
    assert drawn[0] == drawn[1], "the global generator decides nothing"
    learner.train(model, [], 2)
    learner.train(model, [], 1, part=1)
    replace(learner, name="site-2").train(model, [], 1)
    replace(learner, draws=Draws(experiment.seed, bytes(32))).train(model, [], 1)
    assert len({*drawn}) == len(drawn[1:]) == 5


def test_peers_of_an_earlier_request_do_not_stay(tmp_path):
    """The nets they are loaded into do; a site restarted in between answers the same."""
    experiment = tiny(options={"warm_up": 0})
    model = start(experiment)
    peers = [start(experiment, seed) for seed in (7, 8)]
    old = new_client("site-1", experiment, tmp_path)
    for committee in (peers, peers[:1], [], peers[::-1]):
        fresh = new_client("site-1", experiment, tmp_path)
        assert same(
            old.learner.train(model, committee, 2)[0], fresh.learner.train(model, committee, 2)[0]
        )
    assert moved(old.learner.train(model, peers, 2)[0], old.learner.train(model, [], 2)[0])


# --- tasks


def ask(
    site: Client, model: State, task: str, round_: int = 2, part: int = 0, run: str = RUN
) -> Message:
    exchange = Exchange(round_, model, {site.name: ClientTask(task)}, part=part)
    (request,) = requests(site.experiment, exchange, run=run).values()
    return request


@pytest.mark.parametrize(
    ("method", "site", "task"),
    [
        ("wfedavg", "site-2", "supervised"),
        ("rscfed", "site-1", "unsupervised"),
        ("isofed", "site-1", "unsupervised"),
        ("isofed", "site-2", "supervised"),
    ],
)
def test_a_task_for_the_other_group_is_declined(tmp_path, method, site, task):
    """Site 1 has labels, site 2 has none: the answer says so, and carries no model."""
    experiment = isolated(method)
    here = new_client(site, experiment, tmp_path / site, [write_sites(tmp_path / "sites")])
    model = start(experiment)
    trained, steps, means = here.learner.train(model, [], 2, task=task)
    assert trained is model
    assert steps == 0
    assert means == {}
    answer = here.handle(ask(here, model, task, part=int(method == "isofed")))
    assert "error" not in answer.meta
    assert answer.meta["steps"] == 0
    assert answer.meta["train"] == {}
    assert answer.arrays == {}
    assert (answer.meta["labelled"] > 0) == (site == "site-1")
    assert (answer.meta["unlabelled"] > 0) == (site == "site-2")
    assert not (tmp_path / site / "memory").exists()


# --- memory


def rscfed(tmp_path, folder: str, site: str = "site-2") -> Client:
    """Return a site without labels, whose teacher lasts, or the site that has labels."""
    experiment = isolated("rscfed", options={"warm_up": 0})
    sites = tmp_path / "sites"
    return new_client(
        site, experiment, tmp_path / folder, [sites if sites.exists() else write_sites(sites)]
    )


def exchanges(site: Client, task: str = "unsupervised") -> list[Message]:
    """Return requests of four rounds, each with another model; one round is without this site."""
    places = [(1, 0), (1, 2), (2, 0), (2, 1), (2, 2), (4, 1)]
    return [
        ask(site, start(site.experiment, seed), task, round_, part)
        for seed, (round_, part) in enumerate(places)
    ]


def assert_same_answers(found: list[Message], expected: list[Message]) -> None:
    for a, b in zip(found, expected, strict=True):
        assert "error" not in b.meta
        assert b.meta["steps"] > 0
        for meta in (a.meta, b.meta):
            meta["train"].pop("seconds", None)
        assert a.meta == b.meta
        assert list(a.arrays) == list(b.arrays)
        assert all(np.array_equal(a.arrays[name], b.arrays[name]) for name in b.arrays)


def differ(a: Message, b: Message) -> bool:
    return any(not np.array_equal(a.arrays[name], b.arrays[name]) for name in b.arrays)


@pytest.fixture(scope="module")
def lived_on(tmp_path_factory) -> list[Message]:
    """Return the answers of a site whose process lived through all requests."""
    site = rscfed(tmp_path_factory.mktemp("lived"), "on")
    return [site.handle(request) for request in exchanges(site)]


def test_a_site_rebuilt_for_every_request_answers_the_same(tmp_path, lived_on):
    requests = exchanges(rscfed(tmp_path, "rebuilt"))
    assert_same_answers(
        [rscfed(tmp_path, "rebuilt").handle(request) for request in requests], lived_on
    )


def test_a_site_that_forgets_gives_other_answers(tmp_path, lived_on):
    """So it is the memory that makes them equal; the first needs none."""
    forgetful = [
        rscfed(tmp_path, f"{i}").handle(request)
        for i, request in enumerate(exchanges(rscfed(tmp_path, "x")))
    ]
    assert_same_answers(forgetful[:1], lived_on[:1])
    assert all(differ(a, b) for a, b in zip(forgetful[1:], lived_on[1:], strict=True))


@pytest.mark.parametrize("rebuilt", [False, True])
def test_a_repeated_request_gives_the_same_answer(tmp_path, lived_on, rebuilt):
    site = rscfed(tmp_path, "repeated")
    for request, expected in zip(exchanges(site), lived_on, strict=True):
        for _ in range(3):
            if rebuilt:
                site = rscfed(tmp_path, "repeated")
            assert_same_answers([site.handle(request)], [expected])


@pytest.mark.parametrize("rebuilt", [False, True])
def test_an_unfinished_round_asked_again_has_the_same_answers(tmp_path, lived_on, rebuilt):
    """Three parts of round 2 are done, or two, or one, when the server starts it again."""
    site = rscfed(tmp_path, "again")
    requests = exchanges(site)
    for request in requests[:2]:
        site.handle(request)
    for done in (1, 2, 3):
        for request in requests[2 : 2 + done]:
            site.handle(request)
        if rebuilt:
            site = rscfed(tmp_path, "again")
        assert_same_answers([site.handle(request) for request in requests[2:5]], lived_on[2:5])


def test_another_run_starts_without_a_memory(tmp_path, lived_on):
    site = rscfed(tmp_path, "both")
    for request in exchanges(site):
        site.handle(request)
    other = [
        Message({**request.meta, "run": "f" * 32}, request.arrays) for request in exchanges(site)
    ]
    assert_same_answers([site.handle(request) for request in other], lived_on)
    assert sorted(path.name for path in (tmp_path / "both" / "memory").iterdir()) == sorted(
        [RUN, "f" * 32]
    )


def test_a_lost_memory_is_no_error(tmp_path, lived_on):
    site = rscfed(tmp_path, "lost")
    requests = exchanges(site)
    for request in requests[:4]:
        site.handle(request)
    shutil.rmtree(tmp_path / "lost" / "memory")
    answer = site.handle(requests[4])
    assert answer.meta["steps"] > 0
    assert differ(answer, lived_on[4])


def test_an_abort_leaves_the_memory_as_it_was(tmp_path, lived_on):
    site = rscfed(tmp_path, "aborted")
    requests = exchanges(site)
    site.handle(requests[0])
    before = {
        path: path.read_bytes()
        for path in (tmp_path / "aborted" / "memory").rglob("*")
        if path.is_file()
    }
    assert before
    assert "abort" in site.handle(requests[1], lambda: True).meta["error"]
    assert before == {path: path.read_bytes() for path in before}
    assert len(list((tmp_path / "aborted" / "memory" / RUN).iterdir())) == len(before)
    assert_same_answers([site.handle(requests[1])], lived_on[1:2])


@pytest.mark.parametrize("run", ["", "../up", RUN.upper(), RUN + "\n"])
def test_a_run_id_that_could_lead_elsewhere_is_refused(tmp_path, run):
    site = rscfed(tmp_path, "bad")
    request = ask(site, start(site.experiment), "unsupervised")
    answer = site.handle(Message({**request.meta, "run": run}, request.arrays))
    assert "32 hexadecimal digits" in answer.meta["error"]
    assert not answer.arrays
    assert not (tmp_path / "bad" / "memory").exists()


@pytest.mark.parametrize("method", ["fedavg", "ssfl", "fedperl"])
def test_methods_without_a_memory_write_none(tmp_path, method):
    experiment = tiny(method)
    site = new_client("site-1", experiment, tmp_path / "own")
    assert site.handle(ask(site, start(experiment), "train")).meta["steps"] == 2
    assert not (tmp_path / "own" / "memory").exists()


def test_a_site_with_labels_keeps_no_teacher(tmp_path):
    site = rscfed(tmp_path, "labelled", SITES[0])
    assert site.handle(ask(site, start(site.experiment), "supervised")).meta["steps"] > 0
    assert not (tmp_path / "labelled" / "memory").exists()


def test_a_teacher_never_leaves_the_site(lived_on):
    for answer in lived_on:
        assert {name.split("/", 1)[0] for name in answer.arrays} == {"diff"}
        assert set(answer.meta) <= set(Answer.model_fields)
