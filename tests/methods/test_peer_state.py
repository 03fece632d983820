"""What a server keeps of the sites' models, to choose peers by."""

from pathlib import Path

import pytest
import torch

from fedward.methods.fedmatch.algorithm import FedMatchState
from fedward.methods.fedperl.algorithm import FedPerlState
from fedward.methods.peer_state import PeerState
from fedward.storage.model_files import StoredState, load_state, save_state

KINDS = [FedPerlState, FedMatchState]


@pytest.mark.parametrize("kind", KINDS)
def test_the_newest_features_of_each_site_are_kept_by_its_name(kind: type[PeerState]) -> None:
    state = kind(1, {})
    state.remember({"c": torch.tensor([3.0, 4.0]), "a": torch.tensor([1.0, 2.0])})
    state.remember({"b": torch.tensor([5.0, 6.0]), "c": torch.tensor([7.0, 8.0])})
    assert state.seen == ["a", "b", "c"]
    assert state.feature_rows.tolist() == [[1.0, 2.0], [5.0, 6.0], [7.0, 8.0]]
    assert {site: row.tolist() for site, row in state.features.items()} == {
        "a": [1.0, 2.0],
        "b": [5.0, 6.0],
        "c": [7.0, 8.0],
    }
    assert state.indices_of(["c", "stranger", "a"]) == {"a": 0, "c": 2}


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_to_remember_changes_nothing(kind: type[PeerState]) -> None:
    state = kind(1, {})
    state.remember({})
    assert state == kind(1, {})
    assert state.features == {}


@pytest.mark.parametrize(("kind", "name"), [(FedPerlState, "features"), (FedMatchState, "answers")])
def test_runs_that_earlier_releases_began_can_be_resumed(
    kind: type[PeerState], name: str, tmp_path: Path
) -> None:
    """The names in the files of a state are part of its format."""
    state = kind(1, {"w": torch.ones(1)})
    state.remember({"a": torch.tensor([1.0, 2.0])})
    save_state(tmp_path / "state", state)
    stored = StoredState(tmp_path / "state" / "state.safetensors")
    assert set(stored) == {"model/w", f"rows/{name}"}
    restored = load_state(tmp_path / "state", kind)
    assert restored.seen == ["a"]
    assert restored.feature_rows.tolist() == [[1.0, 2.0]]
