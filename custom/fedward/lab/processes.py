"""Processes of the laboratory, forked from one that has imported what their work needs.

That one is the fork server of :mod:`multiprocessing`. It has done nothing but import: it has one
thread, so that no lock is held at a fork, and has touched no GPU, whose state survives no fork. So
a process starts in milliseconds and shares the memory of the imported modules.

As with all processes of :mod:`multiprocessing`, each imports the script that was started: a script
of one's own must start its runs below ``if __name__ == "__main__":``.
"""

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext

from fedward.errors import RunError

PRELOADED = ("fedward.lab.local", "fedward.training.trainer", "fedward.report.figures", "timm")
"""Modules that the runs of a study use in some of their rounds."""


def fork_server(modules: Sequence[str]) -> ForkServerContext:
    """Return what starts processes; the fork server begins to import unless it runs already.

    ``modules`` are those that it imports. A process imports itself what the fork server has not.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(modules))
    with _safe_path():
        forkserver.ensure_running()
    return context


@contextmanager
def _safe_path() -> Iterator[None]:
    """Let a Python that is started here import no module from the working folder."""
    name = "PYTHONSAFEPATH"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def begin_process(environment: Mapping[str, str]) -> None:
    """Prepare a forked process: it has the command's environment and ends with the command.

    The fork server may have been started with another environment. Ctrl-C reaches every process of
    a terminal, and is left to the command.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Else each full collection would visit, and so copy, all that is shared with the fork server.
    gc.freeze()
    os.environ.clear()
    os.environ.update(environment)
    threading.Thread(target=_end_with_the_command, daemon=True).start()


def _end_with_the_command() -> None:
    """End this process once the one that started it is gone; the fork server ends last."""
    command = multiprocessing.parent_process()
    if command:
        command.join()
        os._exit(1)


def run_all(*stages: Mapping[str, partial[str]], workers: int) -> None:
    """Make all calls, each in one of several processes, and print each result as it comes.

    The stages follow one another. A call that fails stops neither the others nor the next stage, so
    that the command can be repeated without their work.

    Args:
        stages: name -> call.
        workers: number of processes.

    Raises:
        RunError: a process was killed; the others are ended at once, as by Ctrl-C.
        Exception: the first error of a call, after all stages.
    """
    errors = [error for stage in stages for error in _errors_of(stage, workers)]
    if errors:
        raise errors[0]


def _errors_of(calls: Mapping[str, partial[str]], workers: int) -> list[BaseException]:
    """Make the calls of a stage and return the errors of those that failed."""
    errors: list[BaseException] = []
    environment = dict(os.environ)
    with ProcessPoolExecutor(
        workers,
        mp_context=fork_server(PRELOADED),
        initializer=begin_process,
        initargs=(environment,),
    ) as pool:
        try:
            names = {pool.submit(_call, call): name for name, call in calls.items()}
            for number, future in enumerate(as_completed(names), 1):
                error = future.exception()
                # A broken pool ends all calls, not this one alone.
                if isinstance(error, BrokenProcessPool):
                    raise RunError(
                        f"{workers} processes",
                        "Run the command again, with fewer --workers: "
                        "finished runs are kept, begun ones go on.",
                        expected="each to live until its runs have ended",
                        found="one was killed, as a machine does that has no memory left",
                    ) from error
                result = error or future.result()
                print(f"{number}/{len(calls)} {names[future]}: {result}", flush=True)
                if error:
                    errors.append(error)
        except BaseException:
            # Else the pool would wait until each process has finished its calls.
            for process in multiprocessing.active_children():
                process.terminate()
            raise
    return errors


def _call(call: Callable[[], str]) -> str:
    return call()
