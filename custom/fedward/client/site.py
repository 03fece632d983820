"""One site: its data, its training, its answers. Both engines call :meth:`Site.handle`."""

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from fedward.client.admission import Admission
from fedward.client.labels import SiteLabels, annotators_of
from fedward.client.memory import OWN, SiteMemory
from fedward.client.site_data import note_source, require_same_source, site_data
from fedward.client.site_log import SiteLog
from fedward.config import Experiment
from fedward.errors import FedwardError, RunError, WireError, WorkError
from fedward.evaluation.classification import classification_metrics
from fedward.evaluation.small_counts import withhold_small_counts
from fedward.methods import method_of
from fedward.methods.algorithm import Algorithm
from fedward.methods.fedal import QUERY, ActiveLearning
from fedward.methods.fedavg import class_weights
from fedward.methods.local import Phase, RoundInputs
from fedward.methods.samplers import Pool, Sampler, ScoreSampler, counts_in_fives, sampler_of, score_counts
from fedward.methods.settings import Settings
from fedward.methods.workflow import SCORE, State
from fedward.nets import build
from fedward.protocol import wire, wire_checks
from fedward.protocol.fields import RefusedError
from fedward.protocol.requests import DecryptRequest
from fedward.protocol.wire import Message
from fedward.security.encryption import SiteKey
from fedward.security.encryption_site import open_sum, seal
from fedward.security.policy import JobRefusedError
from fedward.seeds import derive, torch_generator
from fedward.sites import Images, SiteData, find_site_file
from fedward.terminal import reason, shown
from fedward.training.batches import Pixels, RoundBatches
from fedward.training.evaluation import predict
from fedward.training.pool import observe
from fedward.views import VIEWS

if TYPE_CHECKING:
    from fedward.training.trainer import Trained

_log = logging.getLogger(__name__)


class Site:
    """A site's half of every method.

    Args:
        name: the site's name in the federation.
        experiment: what the job says.
        folder: the site's own folder, for what it remembers of a run.
        site_folders: where the site's data file may lie.
        key: what updates are encrypted with, under secure aggregation.
        cache: for decoded images, which can be made again; by default a folder in ``folder``.
        log: where requests and answers are written down; by default one in ``folder``.
        admission: what the site's policy allows; by default anything.
    """

    def __init__(
        self,
        name: str,
        experiment: Experiment,
        folder: Path,
        site_folders: Sequence[Path] = (),
        key: SiteKey | None = None,
        cache: Path | None = None,
        log: SiteLog | None = None,
        admission: Admission | None = None,
    ) -> None:
        self.admission = admission or Admission(name, experiment, folder)
        self.name, self.experiment, self.folder, self.site_folders = name, experiment, folder, tuple(site_folders)
        self.cache = cache or folder / "cache"
        self.key = key
        self.log = log or SiteLog(folder, name, experiment)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.labels: dict[str, int] | None = None
        """Those in use under active learning: id -> class index."""
        self._told = False
        """Whether the site's log says already that it has no tensors of its own."""
        self._parts: dict[str, Pixels] = {}
        self._peer_nets: list[nn.Module] = []
        if experiment.threads:
            torch.set_num_threads(min(experiment.threads, os.cpu_count() or 1))

    def handle(self, request: Message, aborted: Callable[[], bool] = lambda: False) -> Message:
        """Do what the server asks, write it into the site's log, and return the answer; see :meth:`answer`."""
        answer = self.answer(request, aborted)
        try:
            self.log.add(answer)
        except Exception as error:
            return self._error(request, error)
        return answer

    def answer(self, request: Message, aborted: Callable[[], bool] = lambda: False) -> Message:
        """Do what the server asks and return the answer; never raises, an error becomes an answer.

        The answer says only what kind of error it was: paths and rows stay in the site's own log. Before it leaves, it
        must be in the site's :attr:`log`.
        """
        try:
            asked = self.log.admit(request)
            if waiting := self.admission.waiting(asked, request.arrays):
                return waiting
            if isinstance(asked, DecryptRequest):
                return self._open(asked, request.arrays)
            answer = self._work(request, aborted)
        except Exception as error:
            return self._error(request, error)
        return answer

    def _error(self, request: Message, error: Exception) -> Message:
        # An error raised on purpose says all in its text; of another the traceback is needed.
        log = _log.error if isinstance(error, FedwardError) else _log.exception
        log("site %s, round %s: %s", self.name, shown(request.meta.get("round")), error)
        refused = {"refused": True} if isinstance(error, JobRefusedError) else {}
        meta = {"site": self.name, "round": request.meta.get("round"), "error": public_text(error)}
        return Message(meta | refused)

    def _work(self, request: Message, aborted: Callable[[], bool]) -> Message:
        round_, part = int(request.meta["round"]), int(request.meta["part"])
        memory = SiteMemory(self.folder / "memory", request.meta["run"])
        source = (self.name, self.site_folders, self.folder, str(request.meta["run"]))
        require_same_source(*source)
        note_source(*source)
        known = memory.before(round_, part)
        model = {**wire.unflatten("model", request.arrays, self._template), **self._own(known, round_)}
        counts = self._ask_for_labels(request, model, known, aborted) if self._active else {}
        meta: dict[str, Any] = {
            "site": self.name,
            "round": round_,
            "labelled": len(self.data.labelled),
            "unlabelled": len(self.data.unlabelled),
            "steps": 0,
            "train": {},
            "metrics": [],
            **counts,
        }
        if request.meta["evaluate"]:
            meta["metrics"] = withhold_small_counts(self.evaluate(model))
        arrays: dict[str, np.ndarray] = {}
        if request.meta["task"] not in wire.UNTRAINED:
            peers = [wire.unflatten(role, request.arrays, self._template) for role in wire.roles(request.arrays)]
            phases = self._method.phases(request.meta["task"], round_, len(self.data.labelled))
            self.admission.check_training(phases, self.data)
            trained, meta["steps"], meta["train"] = self._trainer()(
                model, peers, round_, task=request.meta["task"], part=part, memory=known, aborted=aborted
            )
            if self._active and meta["steps"] and self._active.sampler.uses.own_model:
                known["local"] = trained
            if meta["steps"] and (own := {key: trained[key] for key in trained if key.startswith(self._stays)}):
                known[OWN] = own
            memory.save(round_, part, known)
            arrays = wire.difference(trained, model, self._withheld(request)) if meta["steps"] else {}
        return self._checked(Message(meta, arrays), request, model)

    def _own(self, known: Mapping[str, State], round_: int) -> State:
        """Return the tensors that stay here, as trained so far; say once where they are missing though not at first."""
        if self._stays and OWN not in known and round_ > 1 and not self._told:
            self._told = True
            what = ", ".join(name.rstrip(".") for name in self._stays)
            text = "site %s, round %d: no %s of its own is remembered here, the server's first tensors are used"
            _log.warning(text, self.name, round_, what)
        return known.get(OWN, {})

    def _checked(self, answer: Message, request: Message, model: State) -> Message:
        """Return the answer as it may leave: with secure aggregation its update is encrypted."""
        allowed = partial(
            wire_checks.check_answer,
            withheld=self._withheld(request),
            classes=self.experiment.data.classes,
            scalars=self._method.requirements.reported,
        )
        allowed(answer, self.name, request)
        if self.experiment.secure_aggregation:
            # The server will not see it.
            wire_checks.check_norm(self.name, answer, model, self.experiment.largest_update)
            answer = seal(answer, request.meta["task"], self._method.weight, self.key)
            allowed(answer, self.name, request, encrypted=True)
        return answer

    def _open(self, request: DecryptRequest, sums: Mapping[str, np.ndarray]) -> Message:
        names = wire.travelling(self._template, self._method.requirements.withheld(request.trained))
        model = {name: tuple(self._template[name].shape) for name in names}
        folder = self.folder / "decrypted"
        return open_sum(request, sums, self.name, self.experiment, self.key, model=model, folder=folder)

    def _ask_for_labels(
        self, request: Message, model: State, known: Mapping[str, State], aborted: Callable[[], bool]
    ) -> dict[str, Any]:
        """Use the labels that are known by now, after asking for others where the task says so.

        Returns what the answer tells of it.
        """
        method, meta = self._active, request.meta
        assert method is not None
        round_, part = int(meta["round"]), int(meta["part"])
        site_file = find_site_file(self.name, self.site_folders)
        wait = min(self._given.wait_for_labels, self.experiment.timeout / 2)  # an answer that is late does not count
        annotators = annotators_of(self._given, site_file)
        labels = SiteLabels(self.name, annotators, self.folder / "memory", str(meta["run"]), wait)
        self.use_labels(labels.before(round_, part))
        if meta["task"] == "idle":
            return {}
        first, taken = max(method.first(len(labels.pool)), labels.known), labels.taken_before(round_, part)
        due = method.wanted(round_, len(labels.pool), first) - taken if taken >= first else 0
        if meta["task"] == SCORE:
            ids = labels.free(round_, part) if taken >= first else []  # without its first labels it takes no part
            return {"scores": self._score_counts(ids, model, known, round_), "due": due}
        if taken < first:
            wanted, sampler = first, sampler_of("random")
        else:
            free = len(labels.free(round_, part)) if method.settings.budget == "by_score" else 0
            asked = wire_checks.labels_asked(meta, free)
            wanted, sampler = taken + (due if asked is None else asked) if meta["task"] == QUERY else 0, method.sampler

        self.admission.check_questions(max(wanted, method.wanted(method.settings.rounds, len(labels.pool), first)))

        def choose(ids: Sequence[str], number: int) -> list[str]:
            pool = self._pool(sampler, ids, model, known, round_)
            return sampler.choose(pool, number, torch_generator(self.experiment.seed, self.name, "query", round_))

        use, counts = labels.renew(round_, part, wanted, sampler.name, choose, aborted)
        self.use_labels(use)
        if (cost := self._given.minutes_per_label) is not None:
            return {"label_counts": counts, "minutes": cost * (counts["bought"] + counts["cannot_tell"])}
        return {"label_counts": counts}

    def _pool(
        self, sampler: Sampler, ids: Sequence[str], model: State, known: Mapping[str, State], round_: int
    ) -> Pool:
        """Return what a sampler looks at of this site's images."""
        if sampler.uses.own_model and "local" not in known:
            _log.warning("site %s, round %d: no own model yet, the global one stands for it", self.name, round_)
        models = {"global": model, "local": known.get("local", model)}
        return observe(
            self.name,
            self.data.unlabelled.named(ids),
            self._taken(ids),
            sampler.uses,
            lambda name: self._load(self._net, models[name]),
            self.device,
            VIEWS[self.experiment.data.views].weak,
        )

    def _taken(self, free: Sequence[str]) -> Iterable[Images]:
        """Yield the images that have labels, then those that wait for one; read only when they are looked at."""
        yield self.data.labelled
        open_, others = set(free), self.data.unlabelled
        yield others.named([name for name in others.ids if name not in open_])

    def _score_counts(self, ids: Sequence[str], model: State, known: Mapping[str, State], round_: int) -> list[int]:
        """Return how many images have a score in each of equal intervals, counted in fives."""
        sampler = self._active.sampler if self._active else None
        assert isinstance(sampler, ScoreSampler), "a job's settings refuse others"
        pool = self._pool(sampler, ids, model, known, round_)
        return counts_in_fives(score_counts(sampler, pool, len(self.data.classes)))

    def use_labels(self, labels: Mapping[str, int]) -> None:
        """From now on train with these labels of training images (id -> class index) and with no others."""
        if labels == self.labels:
            return
        self.labels, self.data = dict(labels), self._given.with_labels(labels)
        for part in ("labelled", "unlabelled", "all"):
            self._parts.pop(part, None)
        self.__dict__.pop("_class_weights", None)

    def _trainer(self) -> Callable[..., tuple[State, int, dict[str, float]]]:
        """Return what trains here: this process, or as many as the site's own file says."""
        if self.data.processes == 1:
            return self.train
        from fedward.client.ranks import Processes

        return Processes(self, self.data.processes).train

    def train(
        self,
        model: State,
        peers: Sequence[State],
        round_: int,
        *,
        task: str = "train",
        part: int = 0,
        memory: MutableMapping[str, State] | None = None,
        aborted: Callable[[], bool] = lambda: False,
    ) -> tuple[State, int, dict[str, float]]:
        """Train from ``model`` as the method wants it for a task; return (model after, steps, mean losses).

        A site with nothing the method can learn from takes 0 steps and returns the model it was given, BatchNorm's
        statistics included. ``memory`` holds the site's own models between rounds, and is changed.
        """
        started, steps, means = time.perf_counter(), 0, dict[str, float]()
        known = {} if memory is None else memory
        net = self._load(self._net, model)
        committee = [self._load(self._peer_net(index), peer).eval() for index, peer in enumerate(peers)]
        stream: tuple[int | str, ...] = (self.name, round_, part) if part else (self.name, round_)
        # Of one GPU alone: looking at another would take up memory there.
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(derive(self.experiment.seed, *stream, "dropout"))
            for phase in self._method.phases(task, round_, len(self.data.labelled)):
                batches = self._batches(phase, committee, (*stream, *phase.stream))
                if not len(batches):
                    continue
                inputs = RoundInputs(
                    self._class_weights,
                    (round_ - 1) * len(batches),
                    known,
                    torch_generator(self.experiment.seed, *stream, *phase.stream, "mask"),
                )
                trained = self._train(net, batches, phase, inputs, aborted)
                steps, means = steps + trained.steps, means | trained.means
                known.update(trained.memory)
        if not steps:
            return model, 0, means
        state = {key: value.cpu().clone() for key, value in net.state_dict().items()}
        return state, steps, {**means, "seconds": time.perf_counter() - started}

    def _train(
        self, net: nn.Module, batches: RoundBatches, phase: Phase, inputs: RoundInputs, aborted: Callable[[], bool]
    ) -> "Trained":
        # Here, because MONAI takes seconds to import, and evaluation needs none of it.
        from fedward.training.trainer import train

        return train(net, batches, phase, inputs, self._settings, device=self.device, aborted=aborted)

    def _batches(self, phase: Phase, peers: Sequence[nn.Module], stream: tuple[int | str, ...]) -> RoundBatches:
        uses, views = phase.objective.uses, VIEWS[self.experiment.data.views]
        return RoundBatches(
            self._pixels("labelled") if uses.labelled else None,
            None if uses.unlabelled == "none" else self._pixels(uses.unlabelled),
            peers,
            self._settings,
            self.experiment.seed,
            stream,
            views=views._replace(strong=views.weak) if uses.second_view == "weak" else views,
            uses=uses,
        )

    @cached_property
    def _class_weights(self) -> torch.Tensor:
        """(K,) weights of the supervised loss, by this site's labels."""
        classes = len(self.data.classes)
        if self._method.settings.class_weighting == "none":
            return torch.ones(classes, device=self.device)
        counts = torch.bincount(self._pixels("labelled").labels.cpu(), minlength=classes)
        return class_weights(counts).to(self.device)

    def evaluate(self, model: State, splits: Iterable[str] = ("val", "test")) -> list[dict[str, Any]]:
        """Return metric rows of ``model`` on this site's splits (see ``classification_metrics``)."""
        net = self._load(self._net, model)
        rows = []
        for split in splits:
            images: Images = getattr(self.data, split)
            outputs = predict(net, self._pixels(split))
            rows += [
                {"split": split, **row}
                for row in classification_metrics(outputs.numpy(), images.labels[:], self.data.classes)
            ]
        return rows

    @cached_property
    def data(self) -> SiteData:
        """The site's data, loaded at first use; under active learning with the labels known so far."""
        return self._given

    @cached_property
    def _given(self) -> SiteData:
        return site_data(self.name, self.experiment, self.cache, self.site_folders)

    @property
    def needs_one_process(self) -> str:
        """Why several processes cannot share the training; empty where they can."""
        return self._method.requirements.one_process

    @cached_property
    def _active(self) -> ActiveLearning | None:
        """How the site buys labels, if the method does."""
        return self._method.active

    @cached_property
    def _method(self) -> Algorithm[Any]:
        return method_of(self.experiment)

    @property
    def _settings(self) -> Settings:
        """Those that this process trains by."""
        return self._method.settings

    @property
    def _stays(self) -> tuple[str, ...]:
        """How the names of tensors begin that are trained here and kept: laid over every model that comes."""
        return self._method.requirements.private

    def _withheld(self, request: Message) -> tuple[str, ...]:
        """Return how the names of tensors begin that do not go up after the task of a request."""
        return self._method.requirements.withheld(request.meta["task"])

    @cached_property
    def _template(self) -> State:
        return self._net.state_dict()

    @cached_property
    def _net(self) -> nn.Module:
        return self._network()

    def _network(self) -> nn.Module:
        spec = self.experiment
        net = build(spec.net, len(spec.data.classes), spec.data.channels, extend=self._method.extend)
        return net.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]

    def _peer_net(self, index: int) -> nn.Module:
        """Return the net a peer's weights are loaded into, made once for every place in the committee."""
        while len(self._peer_nets) <= index:
            self._peer_nets.append(self._network())
        return self._peer_nets[index]

    def _pixels(self, part: str) -> Pixels:
        if part not in self._parts:
            if part == "all":
                self._parts[part] = Pixels.together([self._pixels("labelled"), self._pixels("unlabelled")])
            else:
                self._parts[part] = Pixels.of(getattr(self.data, part), self.device)
        return self._parts[part]

    @staticmethod
    def _load(net: nn.Module, state: State) -> nn.Module:
        net.load_state_dict(state)
        return net


def public_text(error: BaseException) -> str:
    """Return what the server may know of a site's error: texts that hold no data and no path as they are.

    Of an answer that the wire list refused: where and what was expected, since what was found may be data. Of all
    others only the kind.
    """
    if isinstance(error, RefusedError):
        return reason(f"{error.where}: expected {error.expected}; what was found is in the site's own log")
    if isinstance(error, WireError | WorkError):
        return reason(str(error))
    kind = "an unexpected error"
    if isinstance(error, FedwardError):
        kind = "what it keeps of the run" if isinstance(error, RunError) else "the site's data or settings"
    return f"{type(error).__name__}: {kind}; the details are in the site's own log"
