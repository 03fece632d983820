"""The states that a run folder keeps: which there are, and which of them are whole."""

import math
import shutil
from collections.abc import Iterable
from pathlib import Path

from fedward.digests import file_digest
from fedward.disk import save_json
from fedward.errors import RunError
from fedward.json_text import read_json_file
from fedward.storage import audit
from fedward.storage.model_files import is_round, read_state_file


class SavedStates:
    """A run's folder ``rounds/``: states ``NNNNN/``, and lengths of the logs ``NNNNN.logs.json``.

    Names have five digits, and more from round 100,000 on.

    Args:
        run: the run folder.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._rounds = run / "rounds"

    def rounds(self) -> list[int]:
        """Return the rounds after which there is a state, the oldest first."""
        names = [path.name for path in self._rounds.glob("[0-9]*")]
        return sorted(int(name) for name in names if is_round(name))

    def folder(self, round_: int) -> Path:
        """Return the folder of the state after a round, which need not exist."""
        return self._rounds / f"{round_:05d}"

    def digest(self, round_: int) -> str:
        """Return the SHA-256 of a state's tensors, 64 hexadecimal digits."""
        return file_digest(self.folder(round_) / "state.safetensors")

    def log(self, name: str) -> Path:
        """Return the file of one of the run's logs."""
        return self._run / f"{name}.jsonl"

    def keep_lengths(self, round_: int, logs: Iterable[str]) -> None:
        """Record how many bytes the logs have with the rows up to a round."""
        lengths = {name: self.log(name).stat().st_size for name in logs}
        save_json(self._lengths_file(round_), lengths)

    def lengths(self, round_: int) -> dict[str, int]:
        """Return log -> how many bytes it has with the rows up to a round.

        Raises:
            OSError: the file with the lengths cannot be read.
            ValueError: it is no JSON, or holds something else than lengths.
        """
        file = self._lengths_file(round_)
        content = read_json_file(file)
        # Logs are cut to these lengths. A name with a path would be a file elsewhere.
        holds_lengths = isinstance(content, dict) and all(
            name.isidentifier() and type(length) is int and length >= 0
            for name, length in content.items()
        )
        if not holds_lengths:
            raise ValueError(f"{file.name} holds no lengths of logs")
        return dict(content)

    def drop_all_but(self, number: int) -> int:
        """Remove all states but the newest ``number``, and return the round of the oldest left.

        There must be a state.
        """
        rounds = self.rounds()
        for old_round in rounds[:-number]:
            shutil.rmtree(self.folder(old_round))
            self._lengths_file(old_round).unlink(missing_ok=True)
        return rounds[-number:][0]

    def fault(self, round_: int, recorded: str | None) -> str:
        """Return what is wrong with a state; an empty text if nothing is.

        Args:
            round_: the state's round.
            recorded: hash of its tensors by the audit log; None if the run died before that line.
        """
        try:
            read_state_file(self.folder(round_))
            too_short = [
                name
                for name, length in self.lengths(round_).items()
                if self.log(name).stat().st_size < length
            ]
            digest = self.digest(round_)
        except (OSError, ValueError) as error:
            return f"{type(error).__name__}: {error}"
        if too_short:
            return f"rows are missing in {', '.join(too_short)}"
        if recorded not in (None, digest):
            return f"state.safetensors has the SHA-256 {digest}, the audit log says {recorded}"
        return ""

    def newest_whole(self) -> tuple[int | None, dict[int, str]]:
        """Return the round from which a run goes on, and the damaged states after it.

        The round is that of the newest state that is whole; None without any state. The damages are
        round -> what is wrong with its state, the newest first.

        Raises:
            RunError: there are states, and all of them are damaged.
        """
        recorded = recorded_states(self._run)
        damages: dict[int, str] = {}
        for round_ in reversed(self.rounds()):
            fault = self.fault(round_, recorded.get(round_))
            if not fault:
                return round_, damages
            damages[round_] = fault
        if damages:
            raise RunError(
                f"states in {self._rounds}",
                "Restore the folder from a copy, or start a new run in another folder.",
                expected="one that is whole",
                found="; ".join(f"round {round_}: {fault}" for round_, fault in damages.items()),
            )
        return None, {}

    def mark_damaged(self, round_: int) -> None:
        """Rename a state to ``NNNNN.damaged``: no run goes on from it, but a person can look."""
        damaged = self._rounds / f"{round_:05d}.damaged"
        shutil.rmtree(damaged, ignore_errors=True)
        self.folder(round_).rename(damaged)

    def _lengths_file(self, round_: int) -> Path:
        return self._rounds / f"{round_:05d}.logs.json"


def recorded_states(run: Path) -> dict[int, str | None]:
    """Return round -> hash of its state by the audit log.

    A run that went back to an earlier round has no later ones.
    """
    states: dict[int, str | None] = {}
    # Rounds from here on, in older rows, are of a course of the run that was given up.
    earliest = math.inf
    for row in audit.rows(run, "committed", "resumed"):  # The newest row comes first.
        if row["details"]["round"] < earliest:
            earliest = row["details"]["round"]
            states[earliest] = row["details"]["state"]
    return states
