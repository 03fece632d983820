"""JSON values that nothing can change after they were checked."""

from collections.abc import Iterator, Mapping
from typing import Any


class FrozenMapping(Mapping[str, Any]):
    """A read-only mapping of JSON values, in which mappings and lists are read-only too.

    It equals any mapping with equal items. Lists are held as tuples.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = {key: frozen(value) for key, value in values.items()}

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"FrozenMapping({plain(self)!r})"


def frozen(value: Any) -> Any:
    """Return a JSON value in which nothing can be changed, made of copies."""
    if isinstance(value, Mapping):
        return FrozenMapping(value)
    if isinstance(value, list | tuple):
        return tuple(frozen(entry) for entry in value)
    return value


def plain(value: Any) -> Any:
    """Return a JSON value of dictionaries and lists: a copy that shares nothing with ``value``."""
    if isinstance(value, Mapping):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return value
