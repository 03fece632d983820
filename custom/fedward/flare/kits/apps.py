"""The first object that FLARE builds in every process of a kit: the check of jobs' apps.

It also puts the other guards into that process.
"""

from pathlib import Path
from typing import Any

from nvflare.apis.app_validation import AppValidator
from nvflare.fuel.utils.config import ConfigFormat
from nvflare.fuel.utils.config_factory import ConfigFactory
from nvflare.fuel.utils.json_config_loader import JsonConfigLoader

from fedward.errors import ConfigError
from fedward.flare.classes import JobSide
from fedward.flare.gate import hooks
from fedward.flare.kits import deployer
from fedward.flare.kits.app_check import check


class AppCheck(AppValidator):  # type: ignore[misc]
    """Refuses an app with files, or a configuration, that no export has; named in the kits.

    FLARE builds it in each process of a kit before it opens a connection; only a job in a pod of
    Kubernetes fetches its files before that (:mod:`fedward.flare.job_process`). It therefore also
    puts the gate for messages and the deployer into that process (:mod:`fedward.flare.gate`,
    :mod:`fedward.flare.kits.deployer`).

    FLARE looks at an app's configuration before it asks a validator, and reads it as HOCON or YAML
    too, where a file may include other files and addresses. A process with this check therefore
    reads every configuration as JSON.

    Args:
        role: whose kit it is, ``site`` or ``server``. Kits in use name the argument.
    """

    def __init__(self, role: JobSide) -> None:
        super().__init__()
        self.role = role
        ConfigFactory._fmt2Loader = dict.fromkeys(ConfigFormat, JsonConfigLoader())
        hooks.install()
        deployer.install()

    def validate(self, app_folder: str) -> tuple[str, dict[str, Any]]:
        """Return why an app is refused, empty if it is not, and no properties."""
        try:
            check(Path(app_folder), self.role)
        except ConfigError as error:
            return str(error), {}
        return "", {}
