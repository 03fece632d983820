"""Memory of a job's process between two exchanges."""

import gc
import sys

from nvflare.fuel.utils.memory_utils import cleanup_memory


class ProcessMemory:
    """Keeps a process small between its exchanges, at little cost."""

    def __init__(self) -> None:
        self._frozen_modules = 0
        """Number of imported modules when objects were last frozen."""

    def trim(self) -> None:
        """Collect garbage and return free pages to the system.

        Imported libraries hold half a million objects that are never freed. To walk them takes 0.3
        CPU seconds, while the other end waits. They are therefore frozen after the first walk, and
        again when further modules were imported.
        """
        cleanup_memory()
        if len(sys.modules) != self._frozen_modules:
            gc.freeze()
            self._frozen_modules = len(sys.modules)
