"""Proof of concept: a FedPerl run of three hospitals on this machine, from nothing, unattended.

Provisions, starts a server and three hospitals with TLS between them, submits the clinical job as a
hospital's lead would, fetches the result, and stops everything, also on failure or Ctrl-C. Run it
with `make poc`.
"""

import shutil
import signal
import sys
import time
from pathlib import Path

# Libraries that are being imported would answer Ctrl-C with a long traceback.
signal.signal(signal.SIGINT, signal.SIG_DFL)

from fedward.console.run_end import last_lines  # noqa: E402
from fedward.errors import FedwardError  # noqa: E402
from fedward.flare.jobs.export import export_job  # noqa: E402
from fedward.flare.jobs.reporter import Reporter  # noqa: E402
from fedward.flare.jobs.submit import fetch, session, submit, wait  # noqa: E402
from fedward.jobs import load_experiment  # noqa: E402
from local_federation import LEAD, Federation  # noqa: E402

FOLDER = Path(__file__).resolve().parents[1] / "build" / "poc"
SETTINGS = ["rounds=4", "warm_up=1", "images_per_round=128", "evaluate_every=2", "timeout=120"]
TIMEOUT = 300
"""Seconds for the job."""


def main() -> int:
    """Run the proof of concept; return 0 if the run has finished."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    shutil.rmtree(FOLDER, ignore_errors=True)
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - started:5.0f} s  {text}", flush=True)

    say(f"provisioning, and starting a server and three hospitals in {FOLDER}")
    try:
        with Federation(FOLDER) as federation:
            say("all hospitals are connected")
            job = FOLDER / "jobs" / "fedperl"
            export_job(load_experiment("fedperl", SETTINGS, clinical=True), job, clinical=True)
            with session(federation.kit(LEAD)) as flare:
                job_id = submit(flare, job)
                say(f"{LEAD} submitted job {job_id}")
                run = fetch(flare, wait(flare, job_id, TIMEOUT, Reporter(say)), FOLDER / "results")
            say("finished")
            for line in last_lines(run):
                say(line)
            say("the files hold synthetic images: their numbers say nothing about patients")
    except (FedwardError, RuntimeError) as error:
        say(f"failed: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    say("everything is stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
