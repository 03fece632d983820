"""Networks of which a part trains and the rest is frozen: what trains is all that a model then is
to other modules.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import Tensor, nn

from fedward.digests import arrays_digest
from fedward.errors import ConfigError
from fedward.nets.adapters import adapt

ALL = "all"
HEAD = "head"
ADAPTERS = "adapters"
LAST = "last:"
"""What of a network may train; ``last:`` is followed by a number of blocks."""

_REMEDY = "Choose another part with trainable, or another network."


class _Part(nn.Module):
    """Modules of a network, under their paths in it."""

    def __init__(self, net: nn.Module, paths: Sequence[str]) -> None:
        super().__init__()
        for path in paths:
            *parents, name = path.split(".")
            place: nn.Module = self
            for parent in parents:
                place = place._modules.setdefault(parent, nn.Module())  # type: ignore[assignment]
            place._modules[name] = net.get_submodule(path)


class TrainablePart(_Part):
    """The modules of a network that train. State dict, parameters and mode are theirs alone; calls
    go through all.

    Names of tensors are those in the whole network. The base, which is the rest, stays in
    evaluation mode: statistics of BatchNorm stay as they are, dropout and stochastic depth do
    nothing. It has no gradient, and what lies before the first part that trains leaves no trace for
    one.

    Shape: (N, C, H, W) in [0, 1] to (N, classes).
    """

    whole: nn.Module
    """The network, base included."""

    def __init__(self, whole: nn.Module, paths: Sequence[str]) -> None:
        super().__init__(whole.requires_grad_(False).eval(), paths)
        object.__setattr__(
            self, "whole", whole
        )  # so that torch does not take it for a module of this one
        self.paths = tuple(paths)
        self.requires_grad_(True).train()

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "whole":  # a copy in the making
                raise
            return getattr(self.whole, name)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "TrainablePart":
        self.whole._apply(fn, recurse)  # moves the base, too
        return self

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits (N, classes)."""
        logits: Tensor = self.whole(images)
        return logits

    def of(self, whole: nn.Module) -> "TrainablePart":
        """Return the same part of a network with the same paths."""
        return TrainablePart(whole, self.paths)

    @property
    def base(self) -> str:
        """SHA-256 of the names, shapes, types and values of all tensors that do not train."""
        trained = self.state_dict()
        frozen = {
            name: tensor for name, tensor in self.whole.state_dict().items() if name not in trained
        }
        return arrays_digest({name: tensor.cpu().numpy() for name, tensor in frozen.items()})


class Head(_Part):
    """The part of a network that trains behind a frozen encoder, on features: what the classifier
    receives.

    It shares its tensors with the :class:`TrainablePart` that it is made of.

    Shape: (N, D) to (N, classes).
    """

    classifier: nn.Module

    def __init__(self, part: TrainablePart) -> None:
        super().__init__(part.whole, part.paths)
        object.__setattr__(self, "classifier", part.classifier)

    def forward(self, features: Tensor) -> Tensor:
        """Return the logits (N, classes)."""
        logits: Tensor = self.classifier(features)
        return logits


def trainable_part(
    net: nn.Module, name: str, trainable: str, added: Sequence[str]
) -> TrainablePart:
    """Return the part of a network that trains.

    Args:
        net: with an attribute ``classifier``.
        name: of the network, for errors.
        trainable: ``head``, the classifier; ``last:N``, also the last N blocks, as timm groups
            layers; ``adapters``, also a low-rank change of each linear layer, which is added here.
        added: paths of what a method has added to the network, which trains, too.

    Raises ConfigError: the network has no such part.
    """
    classifier = getattr(net, "classifier", None)
    head = [path for path, module in net.named_modules() if module is classifier]
    if not head:
        found = "none: the layer that turns features into logits is missing"
        raise ConfigError(
            f"net {name}", expected="an attribute classifier", found=found, remedy=_REMEDY
        )
    further: list[str] = []
    if trainable == ADAPTERS:
        further = adapt(net, nn.ModuleList([net.get_submodule(path) for path in (*head, *added)]))
        if not further:
            expected = "linear layers before the classifier, as in a ViT or a Swin"
            found = "none"
            raise ConfigError(
                f"net {name}, trainable=adapters", expected=expected, found=found, remedy=_REMEDY
            )
    elif trainable.startswith(LAST):
        further = _last_blocks(net, name, int(trainable.removeprefix(LAST)))
    wanted = {*head, *added, *further}
    return TrainablePart(net, [path for path, _ in net.named_modules() if path in wanted])


def _last_blocks(net: nn.Module, name: str, number: int) -> list[str]:
    """Return the paths of the modules that the last blocks are, whatever stands between them and
    the classifier.
    """
    blocks = _blocks(net, name)
    if number >= len(blocks):
        where = f"net {name}, trainable={LAST}{number}"
        expected = f"at most {len(blocks) - 1}, of {len(blocks)} blocks"
        raise ConfigError(
            where, expected=expected, found=f"{number}", remedy="Name fewer, or set trainable=all."
        )
    return list(_covering(net, {each for block in blocks[-number:] for each in block}, name))


def _blocks(net: nn.Module, name: str) -> list[list[str]]:
    """Return the names of parameters, block by block from the first to the last; the classifier's
    are left out.
    """
    from timm.models import group_parameters  # here, because timm takes seconds to import

    inner: Any
    inner, prefix = (
        (net, "") if hasattr(net, "group_matcher") else (getattr(net, "net", None), "net.")
    )
    if not hasattr(inner, "group_matcher"):
        expected = "a method group_matcher, as timm's networks have"
        found = "none: its blocks are not known"
        raise ConfigError(
            f"net {name}, trainable={LAST}N", expected=expected, found=found, remedy=_REMEDY
        )
    groups = group_parameters(inner, inner.group_matcher(coarse=False))
    return [[f"{prefix}{each}" for each in groups[number]] for number in sorted(groups)][:-1]


def _covering(module: nn.Module, names: set[str], net: str, path: str = "") -> Iterator[str]:
    """Yield the paths of the largest modules whose parameters are all among ``names``; between them
    they have all.
    """
    prefix = f"{path}." if path else ""
    own = {f"{prefix}{name}" for name, _ in module.named_parameters()}
    if own and own <= names:
        yield path
        return
    loose = names & {f"{prefix}{name}" for name, _ in module.named_parameters(recurse=False)}
    if loose:
        expected = "blocks that are modules"
        found = f"tensors beside them: {', '.join(sorted(loose))}"
        raise ConfigError(
            f"net {net}, trainable={LAST}N", expected=expected, found=found, remedy=_REMEDY
        )
    for name, child in module.named_children():
        yield from _covering(child, names, net, f"{prefix}{name}")
