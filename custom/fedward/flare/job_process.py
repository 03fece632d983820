"""FLARE's process for a job, which imports nothing from the job and has the gate from the start.

``python -m fedward.flare.job_process MODULE ...`` runs one of FLARE's modules. The kits' launchers
start it so, and so does the image's entry point, since in a container FLARE's own launchers start
the process.

FLARE's processes first append an app's folder ``custom`` to ``sys.path``, whether the job may bring
code or not. torch, MONAI and FLARE then try to import packages that need not be installed, and
would find the job's. The kits refuse an app with such a folder. If there is one all the same, this
module makes sure that nothing is imported from it.

Under Kubernetes a job's process fetches its files first, over a connection of its own. The check of
apps, which puts the gate into all other processes, is built only after that.
"""

import runpy
import sys

from nvflare.utils import job_launcher_utils

from fedward.flare.gate import hooks

MODULES = (
    "nvflare.private.fed.app.client.worker_process",
    "nvflare.private.fed.app.server.runner_process",
)
"""FLARE's modules for the processes of a job at a site and at the server."""

_NAME = "fedward.flare.job_process"
"""This module, which is ``__main__`` where it runs."""


def guarded(command: list[str]) -> list[str]:
    """Return FLARE's command for a job's process, with this module before FLARE's.

    Any other command is returned as it is.
    """
    guarded_command = []
    for word in command:
        if word in MODULES:
            guarded_command.append(_NAME)
        guarded_command.append(word)
    return guarded_command


def _import_nothing(_: str) -> None:
    """Replace ``refresh_custom_dir_import_path``, which adds the app's folder to ``sys.path``."""


def main() -> None:
    """Run the module that the first argument names, with the arguments after it."""
    module = sys.argv[1]
    if module not in MODULES:
        sys.exit(f"job_process: expected one of {', '.join(MODULES)}, found {module!r}")
    job_launcher_utils.refresh_custom_dir_import_path = _import_nothing
    hooks.install()
    del sys.argv[0]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
