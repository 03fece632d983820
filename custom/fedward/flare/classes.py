"""The classes that a job may name at a site and at the server.

They are those of the exported jobs, each written out.

FLARE's ``class_allow_list`` admits whole packages too, and its builder calls whatever a module of
theirs holds: one package would admit thousands of functions. What a participant's own files name,
such as its launcher and its privacy filters, needs no entry: FLARE looks the list up for jobs only.
"""

from typing import Literal

JobSide = Literal["site", "server"]
"""Where a part of a job runs."""

EXECUTOR = "fedward.flare.executor.MonaiTrainerExecutor"
TRAINER = "monai.engines.Trainer"
"""The trainer that the executor names: the only one it has."""
TO_SERVER = "nvflare.app_common.widgets.convert_to_fed_event.ConvertToFedEvent"
TENSORBOARD = "nvflare.app_opt.tracking.tb.tb_receiver.TBAnalyticsReceiver"
MLFLOW = "nvflare.app_opt.tracking.mlflow.mlflow_receiver.MLflowReceiver"
WANDB = "nvflare.app_opt.tracking.wandb.wandb_receiver.WandBReceiver"

SYNTHETIC_SITES = "fedward.lab.synthetic.SyntheticSites"
"""Makes the images of sites without files in simulations. No kit admits it: see :data:`ALLOWED`."""

CONTROLLERS = {
    "fedperl": "fedward.flare.workflows.FedPerlController",
    "isofed": "fedward.flare.workflows.IsoFedController",
    "fedal": "fedward.flare.workflows.FedALController",
    "selffed": "fedward.flare.workflows.SelfFedController",
    "fedmatch": "fedward.flare.workflows.FedMatchController",
    "fedirm": "fedward.flare.workflows.FedIRMController",
    "alone": "fedward.flare.workflows.AloneController",
    "survey": "fedward.flare.workflows.SurveyController",
}
"""Controllers of single methods, by the method's name."""
METHOD_CONTROLLER = "fedward.flare.workflows.MethodController"
"""The controller of all other methods, also those of other packages."""

ALLOWED: dict[JobSide, tuple[str, ...]] = {
    "site": (EXECUTOR, TO_SERVER),
    "server": (*CONTROLLERS.values(), METHOD_CONTROLLER, TENSORBOARD),
}

APP_CHECK = "fedward.flare.kits.apps.AppCheck"
LAUNCHER: dict[JobSide, str] = {
    "site": "fedward.flare.launchers.SiteJobLauncher",
    "server": "fedward.flare.launchers.ServerJobLauncher",
}
KIT_METRICS = "fedward.flare.kits.metrics.KitMetrics"
CONSOLE = "fedward.flare.console"
"""Module that a user's kit runs as FLARE's console."""
ONE_ENTRY_A_RECORD = "fedward.flare.logs.OneEntryARecord"
JOBS_THAT_START = "fedward.flare.logs.JobsThatStart"
KIT_PRESENCE = "fedward.flare.kits.presence.KitPresence"
"""What the kits' own files name besides."""
