"""The states that a run folder keeps: which there are, and which of them are whole."""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

from fedward.digests import file_digest
from fedward.storage import audit
from fedward.storage.checkpoint import save_json


class SavedStates:
    """A run's folder ``rounds/``: for each state ``NNNNN/``, and the lengths of the logs in
    ``NNNNN.logs.json``.

    Args:
        run: the run folder.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._rounds = run / "rounds"

    def rounds(self) -> list[int]:
        """Return the rounds after which there is a state, the oldest first."""
        return sorted(int(path.name) for path in self._rounds.glob("?????"))

    def folder(self, round_: int) -> Path:
        """Return where the state after a round lies, or is to lie."""
        return self._rounds / f"{round_:05d}"

    def digest(self, round_: int) -> str:
        """Return the SHA-256 of a state's tensors, 64 hexadecimal digits."""
        return file_digest(self.folder(round_) / "state.safetensors")

    def log(self, name: str) -> Path:
        """Return the file of one of the run's logs."""
        return self._run / f"{name}.jsonl"

    def keep_lengths(self, round_: int, logs: Iterable[str]) -> None:
        """Note how long the logs are with the rows up to a round."""
        save_json(
            self._lengths_file(round_), {name: self.log(name).stat().st_size for name in logs}
        )

    def lengths(self, round_: int) -> dict[str, int]:
        """Return log -> its bytes with the rows up to a round."""
        return dict(json.loads(self._lengths_file(round_).read_text(encoding="utf-8")))

    def drop_all_but(self, number: int) -> int:
        """Drop all but so many newest states, and return the round of the oldest that is left;
        there must be one.
        """
        rounds = self.rounds()
        for old in rounds[:-number]:
            shutil.rmtree(self.folder(old))
            self._lengths_file(old).unlink(missing_ok=True)
        return rounds[-number:][0]

    def fault(self, round_: int, recorded: str | None) -> str:
        """Return what is wrong with a state; empty if nothing is.

        ``recorded`` is its hash by the audit log; None if the run died before that line.
        """
        try:
            json.loads((self.folder(round_) / "state.json").read_text(encoding="utf-8"))
            short = [
                name
                for name, length in self.lengths(round_).items()
                if self.log(name).stat().st_size < length
            ]
            found = self.digest(round_)
        except (OSError, ValueError, TypeError) as error:
            return f"{type(error).__name__}: {error}"
        if short:
            return f"rows are missing in {', '.join(short)}"
        if recorded in (None, found):
            return ""
        return f"state.safetensors has the SHA-256 {found}, the audit log tells {recorded}"

    def mark_damaged(self, round_: int) -> None:
        """Rename a state to ``NNNNN.damaged``: nobody goes on from it, and it can be looked at."""
        aside = self._rounds / f"{round_:05d}.damaged"
        shutil.rmtree(aside, ignore_errors=True)
        self.folder(round_).rename(aside)

    def _lengths_file(self, round_: int) -> Path:
        return self._rounds / f"{round_:05d}.logs.json"


def recorded_states(run: Path) -> dict[int, str | None]:
    """Return round -> hash of its state by the audit log; going back to a round takes later ones
    back.
    """
    states: dict[int, str | None] = {}
    for row in audit.rows(run, "committed", "resumed"):
        if not states or row["details"]["round"] < min(states):
            states[row["details"]["round"]] = row["details"]["state"]
    return states
