"""Calls in processes of their own, several at once.

The processes are forked from one (``forkserver``) that has imported what every run needs and done
nothing else, so that they begin in milliseconds and share its memory.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import partial

from fedward.errors import RunError

PRELOADED = ("fedward.lab.local", "fedward.training.trainer", "fedward.report.figures", "timm")
"""Modules that every run uses, in some of its rounds."""


def run_all(*stages: Mapping[str, partial[str]], workers: int) -> None:
    """Call everything in processes of its own, stage after stage, and print each result as it
    comes.

    A failing run does not stop the others, nor the next stage: what they did is kept, and the
    command can be called again. The first error is raised at the end. Only Ctrl-C ends them all at
    once, and a process that is killed, with a RunError.
    """
    errors = [error for stage in stages for error in _errors_of(stage, workers)]
    if errors:
        raise errors[0]


def _errors_of(work: Mapping[str, partial[str]], workers: int) -> list[BaseException]:
    errors: list[BaseException] = []
    os.environ["PYTHONSAFEPATH"] = (
        "1"  # else what lies in the working folder would be imported as Python's own modules
    )
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_begin) as pool:
        try:
            futures = {pool.submit(_call, call): name for name, call in work.items()}
            for done, future in enumerate(as_completed(futures), 1):
                error = future.exception()
                if isinstance(error, BrokenProcessPool):  # which ends all runs, not this one alone
                    raise RunError(
                        f"{workers} processes",
                        expected="each to live until its runs have ended",
                        found="one was killed, as a machine does that has no memory left",
                        remedy="Run the command again, with fewer --workers: finished runs are kept, begun ones go on.",
                    ) from error
                print(
                    f"{done}/{len(work)} {futures[future]}: {error or future.result()}", flush=True
                )
                errors += [error] if error else []
        except BaseException:
            for worker in (
                multiprocessing.active_children()
            ):  # the pool would wait until each has ended its runs
                worker.terminate()
            raise
    return errors


def _begin() -> None:
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # else a worker that Ctrl-C reaches would begin with its next run
    threading.Thread(target=_end_with_the_command, daemon=True).start()


def _end_with_the_command() -> None:
    """End this process when the one that a person started is gone; the one that forks ends after
    the last.
    """
    command = multiprocessing.parent_process()
    if command:
        command.join()
        os._exit(1)


def _call(call: Callable[[], str]) -> str:
    return call()
