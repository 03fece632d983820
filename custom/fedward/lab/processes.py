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
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext

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


def run_all(*stages: Mapping[str, partial[str]], workers: int) -> None:
    """Make all calls in several processes, and print each result as it arrives.

    The stages follow one another. A call that fails stops neither the other calls nor the next
    stage: if the command is repeated, their work is done already.

    Args:
        stages: name -> call.
        workers: number of processes.

    Raises:
        RunError: a process was killed; the other processes are ended at once, as by Ctrl-C.
        Exception: the first error of a call, after all stages.
    """
    errors = [error for stage in stages for error in _errors_of(stage, workers)]
    if errors:
        raise errors[0]


def _errors_of(calls: Mapping[str, partial[str]], workers: int) -> list[BaseException]:
    """Make the calls of a stage and return the errors of those that failed."""
    if not calls:  # The fork server would import much for nothing.
        return []
    errors: list[BaseException] = []
    children_of_others = multiprocessing.active_children()
    environment = dict(os.environ)
    with ProcessPoolExecutor(
        workers,
        mp_context=fork_server(PRELOADED),
        initializer=begin_process,
        initargs=(environment,),
    ) as pool:
        try:
            name_of = {pool.submit(call): name for name, call in calls.items()}
            for number, future in enumerate(as_completed(name_of), 1):
                error = future.exception()
                # If the pool is broken, no call can end any more, not only this one.
                if isinstance(error, BrokenProcessPool):
                    raise RunError(
                        f"{workers} processes",
                        f"Run it again with fewer workers ({option('workers')}): "
                        "finished runs are kept, begun ones go on.",
                        expected="each to live until its runs have ended",
                        found="one was killed, as happens when memory runs out",
                    ) from error
                result = error or future.result()
                print(f"{number}/{len(calls)} {name_of[future]}: {result}", flush=True)
                if error:
                    errors.append(error)
        except BaseException:
            # Otherwise the pool would wait until each process has finished its calls.
            for process in multiprocessing.active_children():
                if process not in children_of_others:
                    process.terminate()
            raise
    return errors
