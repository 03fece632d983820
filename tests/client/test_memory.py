"""What a site keeps between rounds, also when an exchange is asked for again."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from fedward.client.memory import Memory, site_models, site_records
from fedward.errors import DataError, WireError

RUN = "0123456789abcdef" * 2
OTHER = "f" * 32


def models(value: float, **more: float) -> dict[str, dict[str, Tensor]]:
    """Return a model of each role, which its numbers identify."""
    return {
        role: {
            "z.weight": torch.full((2, 3), number),
            "a.scale": torch.tensor([number, -0.0], dtype=torch.float64),
            "bn.num_batches_tracked": torch.tensor(int(number)),
        }
        for role, number in {"teacher": value, **more}.items()
    }


def value(memory: Memory, round_: int, part: int = 0) -> float | None:
    """Return the number of the teacher known before an exchange, None if there was none."""
    models_before = memory.before(round_, part)
    return models_before["teacher"]["z.weight"][0, 0].item() if models_before else None


def assert_same(actual, expected) -> None:
    assert list(actual) == list(expected)
    for role, state in expected.items():
        assert list(actual[role]) == list(state), "a model's own order"
        for key, tensor in state.items():
            assert torch.equal(actual[role][key], tensor)
            assert actual[role][key].dtype == tensor.dtype


def test_models_come_back_bit_by_bit_in_another_process(tmp_path):
    saved = models(0.1, ghost=-7.5)
    site_models(tmp_path, RUN).save(3, 1, saved)
    assert_same(site_models(tmp_path, RUN).before(4, 0), saved)


@pytest.mark.usefixtures("open_umask")
def test_a_runs_folder_is_its_owners_alone(tmp_path):
    site_models(tmp_path / "models", RUN).save(1, 0, models(1.0))
    site_records(tmp_path / "notes", RUN).save(1, 0, {"asked": ["s00"]})
    folders = [
        tmp_path / "models",
        tmp_path / "models" / RUN,
        tmp_path / "notes",
        tmp_path / "notes" / RUN,
    ]
    assert {folder.stat().st_mode & 0o777 for folder in folders} == {0o700}


def test_what_comes_back_is_the_sites_to_change(tmp_path):
    memory = site_models(tmp_path, RUN)
    memory.save(1, 0, models(1.0))
    remembered = memory.before(2, 0)
    remembered["teacher"]["z.weight"].fill_(9.0)
    remembered["ghost"] = models(2.0)["teacher"]
    assert_same(memory.before(2, 0), models(1.0))


def test_before_the_first_exchange_nothing_is_known(tmp_path):
    memory = site_models(tmp_path / "none", RUN)
    assert memory.before(1, 0) is None
    memory.save(1, 0, models(1.0))
    assert memory.before(1, 0) is None


def test_known_is_what_the_last_exchange_before_left(tmp_path):
    """Exchanges are ordered by round, then by part.

    Those in which a site had no part leave nothing.
    """
    memory = site_models(tmp_path, RUN)
    memory.save(2, 0, models(1.0))
    memory.save(2, 2, models(2.0))
    expected = {
        (1, 0): None,
        (2, 0): None,
        (2, 1): 1.0,
        (2, 2): 1.0,
        (2, 3): 2.0,
        (3, 0): 2.0,
        (8, 7): 2.0,
        (9, 0): 2.0,
        (9, 1): 2.0,
    }
    assert {exchange: value(memory, *exchange) for exchange in expected} == expected
    memory.save(9, 1, models(3.0))
    expected = {(9, 0): 2.0, (9, 1): 2.0, (9, 2): 3.0, (10, 0): 3.0, (99999, 0): 3.0}
    assert {exchange: value(memory, *exchange) for exchange in expected} == expected


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ((9, 0), (10, 0)),
        ((99, 9), (100, 0)),
        ((1, 9), (1, 10)),
        ((1, 99), (1, 100)),
        ((2, 30), (10, 4)),
        ((99999, 0), (100000, 0)),
        ((1, 999), (1, 1000)),
    ],
)
def test_exchanges_are_ordered_as_numbers(tmp_path, earlier, later):
    memory = site_models(tmp_path, RUN)
    memory.save(*earlier, models(1.0))
    assert value(memory, *later) == 1.0
    memory.save(*later, models(2.0))
    assert value(memory, *later) == 1.0
    assert value(memory, later[0], later[1] + 1) == 2.0
    assert value(memory, *earlier) is None


def test_after_a_resumed_round_what_was_written_last_counts(tmp_path):
    """Round 2 was interrupted after its second part, and is repeated with other results."""
    memory = site_models(tmp_path, RUN)
    for round_, part, number in ((1, 0, 1.0), (2, 0, 2.0), (2, 1, 3.0)):
        memory.save(round_, part, models(number))
    memory = site_models(tmp_path, RUN)
    assert value(memory, 2, 0) == 1.0
    memory.save(2, 0, models(20.0))
    assert value(memory, 2, 1) == 20.0
    memory.save(2, 1, models(30.0))
    assert value(memory, 3, 0) == 30.0
    assert value(memory, 2, 1) == 20.0
    assert value(memory, 2, 0) == 1.0


@pytest.mark.parametrize("parts", [1, 2, 7])
@pytest.mark.parametrize("answered", ["all", "last only", "odd rounds"])
def test_an_unfinished_round_can_be_asked_for_again(tmp_path, parts, answered):
    """Nothing older is kept for ever, however many parts a round has.

    The site may have taken part in any of them.
    """
    memory = site_models(tmp_path, RUN)
    number = 0.0
    before_round = None
    for round_ in range(1, 8):
        before_last = before_round
        newest_number = value(memory, round_)
        before_round = newest_number
        for part in range(parts):
            if (answered == "last only" and part < parts - 1) or (
                answered == "odd rounds" and round_ % 2 == 0
            ):
                continue
            assert value(memory, round_, part) == newest_number
            number += 1
            newest_number = number
            memory.save(round_, part, models(number))
            assert value(memory, round_) == before_round, (
                "the server may ask for this round once more"
            )
            assert value(memory, round_ - 1) == before_last, (
                "and for the one before, where its last state is damaged"
            )
    assert number > 3
    assert len(list((tmp_path / RUN).iterdir())) <= 3 * parts + 1


def test_runs_do_not_see_each_other(tmp_path):
    mine = site_models(tmp_path, RUN)
    theirs = site_models(tmp_path, OTHER)
    for round_ in range(1, 9):
        theirs.save(round_, 0, models(10.0 * round_))
        mine.save(round_, 0, models(1.0 * round_))
    for round_ in (8, 9):
        assert value(mine, round_) == round_ - 1.0
        assert value(theirs, round_) == 10.0 * (round_ - 1)


def test_nothing_is_written_where_nothing_is_known(tmp_path):
    site_models(tmp_path / "memory", RUN).save(1, 0, {})
    assert list(tmp_path.iterdir()) == []


def test_no_half_written_file_is_read(tmp_path):
    memory = site_models(tmp_path, RUN)
    memory.save(1, 0, models(1.0))
    (file,) = (tmp_path / RUN).iterdir()
    file.with_name("00002-000.safetensors.partial").write_bytes(b"half")
    assert value(memory, 3) == 1.0


def test_what_copying_leaves_beside_the_files_is_not_read(tmp_path):
    """Some disks keep what a system knows of a file in another one beside it."""
    memory = site_models(tmp_path, RUN)
    memory.save(2, 0, models(1.0))
    (file,) = (tmp_path / RUN).iterdir()
    file.with_name(f"._{file.name}").write_bytes(b"about it")
    assert value(memory, 2) is None
    assert value(memory, 3) == 1.0
    memory.save(9, 0, models(2.0))
    assert value(memory, 9) == 1.0


@pytest.mark.proves("lead", "a run id or name that leads out of the folder", "refused")
@pytest.mark.parametrize(
    "run",
    [
        "",
        "..",
        "../../etc",
        "a/b",
        RUN[:-1],
        RUN + "0",
        RUN.upper(),
        RUN[:-1] + "g",
        RUN + "\n",
        " " + RUN[1:],
        "/" + RUN[1:],
    ],
)
def test_a_run_id_that_is_none_is_refused(tmp_path, run):
    with pytest.raises(WireError, match="32 hexadecimal digits") as refused:
        site_models(tmp_path, run)
    assert repr(run) in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_notes_are_known_by_exchange_as_models_are(tmp_path):
    notes = site_records(tmp_path, RUN)
    assert notes.at(1, 0) is None
    assert notes.before(9, 0) is None
    for round_, part in ((1, 0), (2, 0), (2, 1)):
        notes.save(round_, part, {"round": round_, "part": part})
    notes = site_records(tmp_path, RUN)
    assert notes.at(2, 0) == notes.before(2, 1) == {"round": 2, "part": 0}
    assert notes.before(2, 0) == {"round": 1, "part": 0}
    assert notes.before(10, 0) == {"round": 2, "part": 1}
    assert notes.at(3, 0) is None
    site_models(tmp_path, RUN).save(2, 0, models(1.0))
    assert notes.before(10, 0) == {"round": 2, "part": 1}, "models lie beside them"


def test_notes_no_resumed_run_can_go_back_to_are_deleted(tmp_path):
    notes = site_records(tmp_path, RUN)
    for round_ in range(1, 9):
        notes.save(round_, 0, round_)
        assert notes.before(round_, 0) == (round_ - 1 or None)
        assert notes.before(round_ - 1, 0) == (max(0, round_ - 2) or None), (
            "the server may go back to a round's start"
        )
    assert len(list((tmp_path / RUN).iterdir())) == 3


def test_versions_differ_by_exchange(tmp_path):
    memory = site_models(tmp_path, RUN)
    values = []
    for round_ in range(1, 6):
        memory.save(round_, 0, models(float(round_)))
        values.append(value(memory, round_ + 1))
    assert all(later == earlier + 1 for earlier, later in pairwise(values))


@pytest.mark.parametrize("damage", [b"", b"{", b"[" * 100_000, b"\xff", b"1" * 5000])
def test_damaged_notes_are_named(tmp_path, damage):
    notes = site_records(tmp_path, RUN)
    notes.save(1, 0, {"asked": ["s00"]})
    (file,) = tmp_path.rglob("*.json")
    file.write_bytes(damage)
    with pytest.raises(DataError, match=f"record {file}: expected JSON as this site has written"):
        notes.newest()
