"""Many runs of one process each, several at once."""

import multiprocessing
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path

from fedward.config import Experiment
from fedward.federation.local import run_local


def run_all(work: Mapping[str, partial[str]], workers: int) -> None:
    """Call everything in processes of its own, print each result as it comes, and raise the first error at the end.

    A failing run does not stop the others: what they did is kept, and the command can be called again.
    """
    errors: list[BaseException] = []
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(_call, call): name for name, call in work.items()}
        for done, future in enumerate(as_completed(futures), 1):
            error = future.exception()
            print(f"{done}/{len(work)} {futures[future]}: {error or future.result()}", flush=True)
            errors += [error] if error else []
    if errors:
        raise errors[0]


def _call(call: Callable[[], str]) -> str:
    return call()


def run_or_resume(
    experiment: Experiment,
    folder: Path,
    sites: list[str],
    site_files: Path | None,
    cache: Path,
    init: Path | None = None,
) -> None:
    """Run an experiment in ``folder``, or go on with the run that lies there; its console goes to a file beside it.

    ``init`` is the folder of a finished run, whose weights a new one starts from.
    """
    started = (folder / "run.json").exists()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".txt").open("a") as console, redirect_stdout(console):
        run_local(
            None if started else experiment,
            folder,
            sites=sites,
            resume=started,
            site_folders=[site_files] if site_files else [],
            init=None if started else init,
            cache=cache,
        )
