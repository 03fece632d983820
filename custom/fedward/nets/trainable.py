"""Networks of which a part trains and the rest is frozen.

To all other modules, the model then consists of the part that trains.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import Tensor, nn

from fedward.digests import arrays_digest
from fedward.errors import ConfigError
from fedward.nets.adapters import adapt

ALL = "all"
"""All of a network trains."""
HEAD = "head"
"""The classifier trains."""
ADAPTERS = "adapters"
"""The classifier trains, and a low-rank change of each linear layer."""
LAST = "last:"
"""Followed by a number N: the classifier and the last N blocks train."""

_REMEDY = "Choose another part with trainable, or another network."


class _Part(nn.Module):
    """Modules of a network, under their paths in it."""

    def __init__(self, net: nn.Module, paths: Sequence[str]) -> None:
        super().__init__()
        for path in paths:
            *parents, name = path.split(".")
            owner: nn.Module = self
            for parent in parents:
                owner = owner._modules.setdefault(parent, nn.Module())  # type: ignore[assignment]
            owner._modules[name] = net.get_submodule(path)


class TrainablePart(_Part):
    """The modules of a network that train.

    State dict, parameters and training mode are those of these modules, under their names in the
    whole network. A call goes through the whole network. The rest, the base, stays in evaluation
    mode: statistics of BatchNorm do not change, dropout and stochastic depth do nothing. It has no
    gradient, and layers before the first module that trains keep nothing for one.

    Shape: (N, C, H, W) in [0, 1] to (N, classes).
    """

    whole: nn.Module
    """The whole network, with the base."""

    def __init__(self, whole: nn.Module, paths: Sequence[str]) -> None:
        super().__init__(whole.requires_grad_(False).eval(), paths)
        # Past torch's own __setattr__, which would make it a module of this one.
        object.__setattr__(self, "whole", whole)
        self.paths = tuple(paths)
        self.requires_grad_(True).train()

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            # While a copy is made, it has no whole yet.
            if name == "whole":
                raise
            return getattr(self.whole, name)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "TrainablePart":
        # Moves the base too.
        self.whole._apply(fn, recurse)
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
        frozen = {}
        for name, tensor in self.whole.state_dict().items():
            if name not in trained:
                frozen[name] = tensor.cpu().numpy()
        return arrays_digest(frozen)


class Head(_Part):
    """The part of a network that trains after a frozen encoder.

    It takes features, which is what the classifier receives, and shares its tensors with the
    :class:`TrainablePart` from which it is made.

    Shape: (N, D) to (N, classes).
    """

    classifier: nn.Module

    def __init__(self, part: TrainablePart) -> None:
        super().__init__(part.whole, part.paths)
        object.__setattr__(self, "classifier", part.classifier)
        self.treats_images_alone = isinstance(self.classifier, nn.Linear)

    def forward(self, features: Tensor) -> Tensor:
        """Return the logits (N, classes)."""
        logits: Tensor = self.classifier(features)
        return logits


def trainable_part(
    net: nn.Module, name: str, trainable: str, added: Sequence[str]
) -> TrainablePart:
    """Return the part of a network that trains.

    Args:
        net: the network, with an attribute ``classifier``.
        name: its name, for errors.
        trainable: ``head``: the classifier. ``last:N``: the classifier and the last N blocks, as
            timm groups layers. ``adapters``: the classifier and a low-rank change of each linear
            layer, which is added here.
        added: paths of the modules that a method has added to the network, which train too.

    Raises:
        ConfigError: the network has no such part.
    """
    classifier = getattr(net, "classifier", None)
    head = [path for path, module in net.named_modules() if module is classifier]
    if not head:
        raise ConfigError(
            f"net {name} has no attribute classifier, the layer that turns features into logits",
            _REMEDY,
        )
    paths = {*head, *added}
    if trainable == ADAPTERS:
        adapters = adapt(net, nn.ModuleList([net.get_submodule(path) for path in paths]))
        if not adapters:
            raise ConfigError(
                f"net {name}, trainable=adapters",
                _REMEDY,
                expected="linear layers before the classifier, as in a ViT or a Swin",
                found="none",
            )
        paths.update(adapters)
    elif trainable.startswith(LAST):
        paths.update(_last_blocks(net, name, int(trainable.removeprefix(LAST))))
    return TrainablePart(net, [path for path, _ in net.named_modules() if path in paths])


def _last_blocks(net: nn.Module, name: str, number: int) -> list[str]:
    """Return the paths of the modules of the last blocks.

    Modules between the last block and the classifier belong to the last block.
    """
    blocks = _blocks(net, name)
    if number >= len(blocks):
        raise ConfigError(
            f"net {name}, trainable={LAST}{number}",
            "Name fewer, or set trainable=all.",
            expected=f"at most {len(blocks) - 1}, of {len(blocks)} blocks",
            found=f"{number}",
        )
    parameters = {parameter for block in blocks[-number:] for parameter in block}
    return list(_covering(net, parameters, name))


def _blocks(net: nn.Module, name: str) -> list[list[str]]:
    """Return the names of the parameters of each block, from the first to the last block.

    The classifier's parameters are not among them.
    """
    # Imported here, because timm takes seconds to import.
    from timm.models import group_parameters

    inner: Any = net
    prefix = ""
    if not hasattr(net, "group_matcher"):
        inner = getattr(net, "net", None)
        prefix = "net."
    if not hasattr(inner, "group_matcher"):
        raise ConfigError(
            f"net {name}, trainable={LAST}N",
            _REMEDY,
            expected="a method group_matcher, as timm's networks have",
            found="none: its blocks are not known",
        )
    groups = group_parameters(inner, inner.group_matcher(coarse=False))
    blocks = []
    for number in sorted(groups):
        blocks.append([f"{prefix}{parameter}" for parameter in groups[number]])
    # The last group is the classifier.
    return blocks[:-1]


def _covering(module: nn.Module, names: set[str], net: str, path: str = "") -> Iterator[str]:
    """Yield the paths of the largest modules that have the named parameters and no others.

    Together they have all named parameters.

    Args:
        module: the module to search.
        names: names of parameters in the whole network.
        net: the network's name, for errors.
        path: of the module in the whole network.

    Raises:
        ConfigError: a module owns both named parameters and modules with other ones.
    """
    prefix = f"{path}." if path else ""
    parameters = {f"{prefix}{name}" for name, _ in module.named_parameters()}
    if parameters and parameters <= names:
        yield path
        return
    direct = {f"{prefix}{name}" for name, _ in module.named_parameters(recurse=False)}
    if names & direct:
        raise ConfigError(
            f"net {net}, trainable={LAST}N",
            _REMEDY,
            expected="blocks that are modules",
            found=f"tensors beside them: {', '.join(sorted(names & direct))}",
        )
    for name, child in module.named_children():
        yield from _covering(child, names, net, f"{prefix}{name}")
