"""The privacy ledger: what releases cost together, when they stop, and what it does not believe."""

import json
import math
import multiprocessing
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from dp_accounting import GaussianDpEvent, SelfComposedDpEvent, get_epsilon_gaussian
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from fedward.digests import canonical, digest
from fedward.errors import ConfigError, DataError
from fedward.security import kept_chain
from fedward.security.kept_chain import last_hashes
from fedward.security.noise_rule import Rule
from fedward.security.privacy_budget import epsilon
from fedward.security.privacy_ledger import PRIVACY, BudgetUsedError, enter, spent
from fedward.storage.chain import Chain
from file_modes import modes

DELTA = 1e-5
RULE = Rule(clip=1.0, noise_multiplier=4.0, delta=DELTA, max_epsilon=8.0)
"""A rule that allows eleven releases."""
ALLOWED = 11


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return PRIVACY.file(tmp_path / "fedward", "hospital-b")


@pytest.fixture
def five(path: Path) -> Path:
    """Return a ledger of five releases."""
    release(path, 5)
    return path


def release(path: Path, number: int = 1, rule: Rule = RULE) -> list[dict[str, Any]]:
    return [enter(path, {"job": "job-1", "round": round_}, rule) for round_ in range(1, number + 1)]


def answer(path: Path, site: str = "hospital-b", run: str = "0" * 32) -> None:
    """Write into the site's log of answers what the ledger's last hash is."""
    log = path.parent / "answers" / f"{run}.jsonl"
    log.parent.mkdir(parents=True, exist_ok=True)
    Chain(log, run).add(
        {
            "site": site,
            "event": "answered",
            "ledger": last_hashes({PRIVACY: PRIVACY.file(path.parent, site)})[PRIVACY],
        }
    )


def end_of(path: Path) -> Path:
    return path.with_name("privacy-hospital-b.end.json")


# --- what releases cost


@pytest.mark.parametrize("rounds", [1, 10, 100])
@pytest.mark.parametrize("noise_multiplier", [2.0, 20.0])
def test_epsilon_is_that_of_dp_accounting(rounds: int, noise_multiplier: float) -> None:
    """Updates of norm <= clip differ by up to 2 clip, so the multiplier is half the noise's."""
    ours = epsilon([noise_multiplier] * rounds, DELTA)
    assert ours == pytest.approx(
        get_epsilon_gaussian(noise_multiplier / 2 / math.sqrt(rounds), DELTA), rel=1e-9
    )
    event = SelfComposedDpEvent(GaussianDpEvent(noise_multiplier / 2), rounds)
    tight = PLDAccountant().compose(event).get_epsilon(DELTA)
    assert ours == pytest.approx(tight, rel=2e-3)
    assert ours <= RdpAccountant().compose(event).get_epsilon(DELTA)


def test_epsilon_of_unequal_releases() -> None:
    accountant = PLDAccountant()
    for noise_multiplier in (4.0, 6.0, 6.0, 10.0):
        accountant.compose(GaussianDpEvent(noise_multiplier / 2))
    assert epsilon([4.0, 6.0, 6.0, 10.0], DELTA) == pytest.approx(
        accountant.get_epsilon(DELTA), rel=2e-3
    )
    assert epsilon([], DELTA) == 0.0


def test_the_hash_that_leaves_does_not_tell_the_norm(path: Path) -> None:
    """The norm is the one value of a line that nobody else could compute or has received."""
    written = enter(path, {"job": "job-1", "round": 1, "norm": 0.25}, RULE)
    line = {name: written[name] for name in written if name != "hash"}
    assert written["hash"] == digest(line)
    assert len(bytes.fromhex(line.pop("salt"))) == 16
    assert written["hash"] != digest(line), "all that a reader could try norms with"
    other = enter(path.with_name("privacy-other.jsonl"), {}, RULE)
    assert other["salt"] != written["salt"]


def test_a_ledger_from_before_salts_is_read_on(path: Path) -> None:
    path.parent.mkdir(parents=True)
    chain = Chain(path, path.name)
    for _ in range(ALLOWED - 1):
        chain.add({"job": "job-1", "round": 1, "norm": 0.25, "noise_multiplier": 4.0})
    end_of(path).write_text(canonical(chain.end))
    assert release(path)[0]["releases"] == ALLOWED
    with pytest.raises(BudgetUsedError):
        release(path)


def test_the_account_runs_on_under_another_rule(path: Path) -> None:
    rows = release(path, 2) + release(path, 1, Rule(0.5, 10.0, 1e-6, 8.0))
    assert [row["releases"] for row in rows] == [1, 2, 3]
    expected = [epsilon([4.0], DELTA), epsilon([4.0, 4.0], DELTA), epsilon([4.0, 4.0, 10.0], 1e-6)]
    assert [row["epsilon"] for row in rows] == pytest.approx(expected, rel=1e-12)
    assert [row["sigma"] for row in rows] == [4.0, 4.0, 5.0]
    assert spent(path) == [4.0, 4.0, 10.0]


# --- what a site may set


ABSURD_VALUES: dict[str, list[Any]] = {
    "noise_multiplier": [0, -1.0, 1e-320, 1e-6, 1.2, 1e7, math.nan, math.inf, True, "4"],
    "delta": [0, 0.5, 1e-3, 1.01e-4, math.nan],
    "max_epsilon": [0, -1.0, 21.0, 1e13, math.inf, None],
    "clip": [0, -1.0, 1e7, math.inf, math.nan],
}


@pytest.mark.proves(
    "files",
    "noise that hides nothing: a multiplier of 1e-6, a delta of 0.5, no bounds",
    "no filter is built, and `fedward doctor` fails",
)
@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, values in ABSURD_VALUES.items() for value in values],
)
def test_absurd_rules_are_refused(name: str, value: Any) -> None:
    values = {"clip": 1.0, "noise_multiplier": 4.0, "delta": DELTA, "max_epsilon": 8.0}
    with pytest.raises(ConfigError, match=rf"GaussianUpdateFilter, {name}: .*privacy\.json"):
        Rule(**{**values, name: value})


def test_a_rule_that_one_release_breaks_says_what_it_costs() -> None:
    with pytest.raises(ConfigError, match=r"at most epsilon 8, found 1: one costs 9\.997"):
        Rule(1.0, 1.0, DELTA, 8.0)
    assert Rule(1.0, 1.0, DELTA, 10.0).releases_left([]) == 1


# --- when a site stops


def test_a_site_stops_before_it_spends_too_much(path: Path) -> None:
    assert RULE.releases_left([]) == ALLOWED
    release(path, ALLOWED)
    ledger_before = path.read_bytes()
    end_before = end_of(path).read_bytes()
    for _ in range(2):
        with pytest.raises(BudgetUsedError) as stopped:
            release(path)
        assert stopped.value.public == "privacy budget used up: epsilon 7.955 of 8 at delta 1e-05"
    assert path.read_bytes() == ledger_before
    assert end_of(path).read_bytes() == end_before
    assert RULE.releases_left(spent(path)) == 0
    larger_budget = Rule(1.0, 4.0, DELTA, 8.5)  # the site's own decision
    assert release(path, rule=larger_budget)[0]["releases"] == ALLOWED + 1


@settings(max_examples=30, deadline=None)
@given(
    used=st.lists(st.floats(3.0, 100.0), max_size=5),
    noise_multiplier=st.floats(3.0, 200.0),
    budget=st.floats(4.0, 20.0),
)
def test_what_is_left_is_what_fits(
    used: list[float], noise_multiplier: float, budget: float
) -> None:
    rule = Rule(1.0, noise_multiplier, DELTA, budget)
    releases_left = rule.releases_left(used)
    all_that_fit = used + [noise_multiplier] * releases_left
    one_too_many = used + [noise_multiplier] * (releases_left + 1)
    assert releases_left == 0 or epsilon(all_that_fit, DELTA) <= budget * (1 + 1e-9)
    assert epsilon(one_too_many, DELTA) > budget * (1 - 1e-9)


def _try(path: Path) -> bool:
    try:
        enter(path, {}, RULE)
    except BudgetUsedError:
        return False
    return True


@pytest.mark.proves(
    "lead",
    "several jobs, or a job's name that leads to another ledger, to spend a privacy budget twice",
    "one budget covers all jobs",
)
def test_jobs_at_once_share_the_budget(path: Path) -> None:
    release(path, ALLOWED - 3)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        releases_granted = pool.map(_try, [path] * 8, chunksize=1)
    assert sum(releases_granted) == 3
    assert len(spent(path)) == ALLOWED


# --- what it does not believe


def edited(line: bytes, **changes: Any) -> bytes:
    """Return a line with other values and the hash that fits them."""
    row = json.loads(line) | changes
    del row["hash"]
    return canonical(row | {"hash": digest(row)}).encode()


def cut(lines: list[bytes]) -> list[bytes]:
    return lines[:3]


def lessen(lines: list[bytes]) -> list[bytes]:
    return [line.replace(b'"noise_multiplier":4.0', b'"noise_multiplier":900.0') for line in lines]


def lessen_one_with_its_hash(lines: list[bytes]) -> list[bytes]:
    return [*lines[:2], edited(lines[2], noise_multiplier=900.0), *lines[3:]]


def lessen_the_last_with_its_hash(lines: list[bytes]) -> list[bytes]:
    return [*lines[:4], edited(lines[4], noise_multiplier=900.0)]


def take_out(lines: list[bytes]) -> list[bytes]:
    return [*lines[:2], *lines[3:]]


def swap(lines: list[bytes]) -> list[bytes]:
    return [*lines[:2], lines[3], lines[2], lines[4]]


def replace_by_an_unchained_one(lines: list[bytes]) -> list[bytes]:
    return [b'{"noise_multiplier": 900.0}']


def half_the_last(lines: list[bytes]) -> list[bytes]:
    return [*lines[:4], lines[4][:40]]


@pytest.mark.proves(
    "files",
    "a privacy ledger is cut, edited, forked, deleted, linked or another site's, or "
    "has a line that costs nothing",
    "no update leaves: the ledger's end and the site's log of answers notice it",
)
@pytest.mark.parametrize(
    "change",
    [
        cut,
        lessen,
        lessen_one_with_its_hash,
        lessen_the_last_with_its_hash,
        take_out,
        swap,
        half_the_last,
        replace_by_an_unchained_one,
    ],
)
def test_a_changed_ledger_is_refused(five: Path, change: Any) -> None:
    whole = five.read_bytes()
    content = b"\n".join(change(whole.splitlines()))
    end = b"" if change is half_the_last else b"\n"
    five.write_bytes(content + end)
    for _ in range(2):
        with pytest.raises(DataError, match="No update leaves"):
            release(five)
        with pytest.raises(DataError, match="No update leaves"):
            spent(five)
    five.write_bytes(whole)
    assert release(five)[0]["releases"] == 6


@pytest.mark.parametrize(
    "content",
    [None, b"", b"{", b"[]", b'{"lines":true,"last_hash":1}', b'{"lines":9,"last_hash":"x"}'],
)
def test_without_a_fitting_end_nothing_is_released(five: Path, content: bytes | None) -> None:
    end_of(five).unlink()
    if content is not None:
        end_of(five).write_bytes(content)
    with pytest.raises(DataError, match="No update leaves"):
        release(five)


@pytest.mark.proves(
    "files",
    "a privacy ledger is cut, edited, forked, deleted, linked or another site's, or "
    "has a line that costs nothing",
    "no update leaves: the ledger's end and the site's log of answers notice it",
)
@pytest.mark.parametrize(
    ("older", "reason"),
    [(0, "found no such file"), (3, "log of answers knows of")],
)
def test_what_the_answers_know_must_be_in_the_ledger(path: Path, older: int, reason: str) -> None:
    files = [path, end_of(path)]
    release(path, older)
    answer(path)  # Of the answers in a log the newest one counts.
    copies = {file: file.read_bytes() for file in files if file.exists()}
    release(path, 2)
    answer(path)
    answer(path, "hospital-c")  # has no ledger
    for file in files:
        file.unlink()
        if file in copies:
            file.write_bytes(copies[file])
    for _ in range(2):
        with pytest.raises(DataError, match=reason):
            release(path)
        with pytest.raises(DataError, match=reason):
            spent(path)
        answer(path)  # One without an update: it must not vouch for the older copy.


@pytest.mark.proves(
    "files",
    "a privacy ledger is cut, edited, forked, deleted, linked or another site's, or "
    "has a line that costs nothing",
    "no update leaves: the ledger's end and the site's log of answers notice it",
)
def test_a_forked_ledger_is_refused(path: Path) -> None:
    release(path, 3)
    copies = {file: file.read_bytes() for file in (path, end_of(path))}
    release(path, 2)
    answer(path)
    for file, content in copies.items():
        file.write_bytes(content)
    chain = Chain(path, path.name)
    for _ in range(2):
        chain.add({"noise_multiplier": 900.0})
    end_of(path).write_text(canonical(chain.end))
    for _ in range(2):
        with pytest.raises(DataError, match="log of answers knows of"):
            release(path)
        answer(path)


@pytest.mark.proves(
    "files",
    "ledger, its end and the log of answers are all forged",
    "**not covered**: nothing outside the site keeps its account; protect the folder "
    "and keep backups",
)
def test_a_site_can_lie_to_itself(five: Path) -> None:
    answer(five)
    shutil.rmtree(five.parent)
    assert release(five)[0]["releases"] == 1


def test_answers_that_agree_let_it_go_on(path: Path) -> None:
    for run in ("a" * 32, "b" * 32):
        answer(path, run=run)
        for site in ("hospital-b", "hospital-c"):  # as in a simulator, whose sites share a folder
            release(PRIVACY.file(path.parent, site))
            answer(path, site, run)
        release(path)
    assert len(spent(path)) == 4


def test_a_log_of_answers_that_cannot_be_read_stops_it(five: Path) -> None:
    answer(five)
    log = next((five.parent / "answers").iterdir())
    log.write_bytes(b'{"ledger":"' + log.read_bytes())
    with pytest.raises(DataError, match="lines of the site's log of answers"):
        release(five)


@pytest.mark.proves(
    "files",
    "a privacy ledger is cut, edited, forked, deleted, linked or another site's, or "
    "has a line that costs nothing",
    "no update leaves: the ledger's end and the site's log of answers notice it",
)
@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, 10**400, 0, -4.0, "4", None, True, [4.0]]
)
def test_a_line_that_is_no_release_is_refused(five: Path, value: Any) -> None:
    """With the right hashes too: what cannot be accounted for stops the site."""
    chain = Chain(five, five.name)
    chain.add({"noise_multiplier": value})
    end_of(five).write_text(canonical(chain.end))
    with pytest.raises(DataError, match="a noise multiplier above 0 in line 6"):
        release(five)


@pytest.mark.proves(
    "files",
    "a privacy ledger is cut, edited, forked, deleted, linked or another site's, or "
    "has a line that costs nothing",
    "no update leaves: the ledger's end and the site's log of answers notice it",
)
@pytest.mark.parametrize("at_its_end", [False, True])
def test_a_link_is_refused(five: Path, tmp_path: Path, at_its_end: bool) -> None:
    link = end_of(five) if at_its_end else five
    target = shutil.move(link, tmp_path / "elsewhere")
    before = target.read_bytes()
    link.symlink_to(target)
    with pytest.raises(DataError, match="expected a file of its own"):
        release(five)
    assert target.read_bytes() == before


@pytest.mark.proves(
    "files",
    "a privacy ledger is cut, edited, forked, deleted, linked or another site's, or "
    "has a line that costs nothing",
    "no update leaves: the ledger's end and the site's log of answers notice it",
)
def test_the_ledger_of_another_site_is_refused(five: Path, tmp_path: Path) -> None:
    other = PRIVACY.file(tmp_path / "fedward", "hospital-c")
    shutil.copy(five, other)
    shutil.copy(end_of(five), other.with_name("privacy-hospital-c.end.json"))
    with pytest.raises(DataError, match="one of another"):
        release(other)


# --- what may happen to an honest site


def test_a_release_whose_end_was_not_written_counts(path: Path) -> None:
    """A crash after the line, before the end: the update may have left or not."""
    release(path, 4)
    earlier = end_of(path).read_bytes()
    release(path)
    end_of(path).write_bytes(earlier)
    assert release(path)[0]["releases"] == 6


def test_a_crash_after_the_first_line_does_not_stop_a_site(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def power_cut(chain: Chain) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Chain, "end", property(power_cut))
        with pytest.raises(KeyboardInterrupt):
            release(path)
    assert release(path)[0]["releases"] == 2


def _release_until_killed(path: Path, sent: Any) -> None:
    while True:
        enter(path, {}, Rule(1.0, 1000.0, DELTA, 20.0))
        sent.send(None)  # in place of the update that leaves


@pytest.mark.proves(
    "faults",
    "a site's process is killed between spending privacy budget and sending an update",
    "no release is missing from the ledger",
)
def test_a_killed_process_gives_no_budget_back(path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    received, sent = spawn.Pipe(duplex=False)
    process = spawn.Process(target=_release_until_killed, args=(path, sent))
    process.start()
    sent.close()
    for _ in range(5):
        received.recv()
    process.kill()
    process.join()
    releases_left = 5
    with suppress(EOFError):
        while True:
            received.recv()
            releases_left += 1
    counted = len(spent(path))
    assert releases_left <= counted <= releases_left + 1  # one may be written and not sent
    assert enter(path, {}, RULE)["releases"] == counted + 1


def test_half_a_line_of_a_crash_is_quoted_and_does_not_count(five: Path) -> None:
    with five.open("ab") as file:
        file.write(b'{"noise_mul')
    assert release(five)[0]["releases"] == 6
    assert json.loads(five.read_bytes().splitlines()[5])["torn"] == '{"noise_mul'
    assert release(five)[0]["releases"] == 7


@pytest.mark.usefixtures("open_umask")
def test_all_of_it_is_its_owners_alone(five: Path) -> None:
    assert modes(five.parent) == {0o600, 0o700}


def test_the_last_hash_is_that_of_the_newest_release(path: Path) -> None:
    assert last_hashes({PRIVACY: path})[PRIVACY] is None
    rows = release(path, 2)
    assert last_hashes({PRIVACY: path})[PRIVACY] == rows[-1]["hash"] != rows[0]["hash"]


def test_a_release_during_reading_does_not_look_like_a_cut(five, monkeypatch):
    read = kept_chain.read

    def slow(file: Path) -> tuple[list[bytes], bytes]:
        content = read(file)
        monkeypatch.setattr(kept_chain, "read", read)
        release(five, 1)
        return content

    monkeypatch.setattr(kept_chain, "read", slow)
    assert len(spent(five)) == 5
    assert len(spent(five)) == 6
