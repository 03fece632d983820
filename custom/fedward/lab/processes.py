"""Processes of the laboratory, forked from one that has imported what their work needs.

The process that they are forked from is the fork server of :mod:`multiprocessing`. It has done
nothing but import: it has one thread, so no lock is held at a fork, and it has not touched a GPU,
whose state does not survive a fork. A forked process starts in milliseconds and shares the memory
of the imported modules.

As with all processes of :mod:`multiprocessing`, each imports the script that was started. So a
script that starts runs must do so below ``if __name__ == "__main__":``.
"""

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from types import MappingProxyType

from fedward.errors import RunError, option

PRELOADED = ("fedward.lab.local", "fedward.training.trainer", "fedward.report.figures", "timm")
"""Modules that the runs of a study use in some of their rounds."""


def fork_server(modules: Sequence[str]) -> ForkServerContext:
    """Start the fork server unless it runs already, and return the context that forks from it.

    A new fork server imports ``modules``. If it was started with other modules, each process
    imports for itself what is missing.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(modules))
    with _safe_path():
        forkserver.ensure_running()
    return context


@contextmanager
def _safe_path() -> Iterator[None]:
    """Keep a Python that is started within from importing modules of the working folder."""
    variable = "PYTHONSAFEPATH"
    previous_value = os.environ.get(variable)
    os.environ[variable] = "1"
    try:
        yield
    finally:
        if previous_value is None:
            del os.environ[variable]
        else:
            os.environ[variable] = previous_value


def begin_process(environment: Mapping[str, str]) -> None:
    """Prepare a forked process: it takes the command's environment, and ends with the command.

    The fork server may have been started with another environment. Ctrl-C reaches every process of
    a terminal; only the command handles it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A full garbage collection writes to each object that it visits, and so would copy the memory
    # that is shared with the fork server. Frozen objects are not visited.
    gc.freeze()
    os.environ.clear()
    os.environ.update(environment)
    threading.Thread(target=_end_with_the_command, daemon=True).start()


def _end_with_the_command() -> None:
    """End this process once the command is gone; the fork server itself would outlive it."""
    command = multiprocessing.parent_process()
    if command:
        command.join()
        os._exit(1)


def run_all(
    calls: Mapping[str, partial[str]],
    workers: int,
    after: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> None:
    """Make all calls in several processes, and print each result as it arrives.

    A free process takes the first call whose turn has come. A call that fails stops no other: if
    the command is repeated, their work is done already.

    Args:
        calls: name -> call, in the order in which they begin.
        workers: number of processes.
        after: name -> names of the calls that must have ended before it begins, whether they failed
            or not. A call of another name is not waited for.

    Raises:
        RunError: a process was killed; the other processes are ended at once, as by Ctrl-C.
        ValueError: calls wait for each other.
        Exception: the first error of a call, after all others have ended.
    """
    if not calls:  # The fork server would import much for nothing.
        return
    children_of_others = multiprocessing.active_children()
    environment = dict(os.environ)
    with ProcessPoolExecutor(
        workers,
        mp_context=fork_server(PRELOADED),
        initializer=begin_process,
        initargs=(environment,),
    ) as pool:
        try:
            errors = _errors_of(pool, calls, workers, after)
        except BaseException as error:
            # Otherwise the pool would wait until each process has finished its calls.
            for process in multiprocessing.active_children():
                if process not in children_of_others:
                    process.terminate()
            # If the pool is broken, no call can end any more, not only that of the killed process.
            if isinstance(error, BrokenProcessPool):
                raise RunError(
                    f"{workers} processes",
                    f"Run it again with fewer workers ({option('workers')}): "
                    "finished runs are kept, begun ones go on.",
                    expected="each to live until its runs have ended",
                    found="one was killed, as happens when memory runs out",
                ) from error
            raise
    if errors:
        raise errors[0]


def _errors_of(
    pool: Executor,
    calls: Mapping[str, partial[str]],
    workers: int,
    after: Mapping[str, Collection[str]],
) -> list[BaseException]:
    """Make the calls, as :func:`run_all` says, and return the errors of those that failed."""
    waiting = dict(calls)
    running: dict[Future[str], str] = {}
    errors: list[BaseException] = []
    ended = 0
    while waiting or running:
        not_ended = {*waiting, *running.values()}
        ready = [name for name in waiting if not_ended.isdisjoint(after.get(name, ()))]
        if not ready and not running:
            raise ValueError(f"calls that wait for each other: {', '.join(waiting)}")
        for name in ready[: workers - len(running)]:
            running[pool.submit(waiting.pop(name))] = name
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            ended += 1
            name = running.pop(future)
            error = future.exception()
            if isinstance(error, BrokenProcessPool):
                raise error
            print(f"{ended}/{len(calls)} {name}: {error or future.result()}", flush=True)
            if error:
                errors.append(error)
    return errors
