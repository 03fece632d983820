"""A federation in which foreign code cannot run unseen."""

from local_federation import HOSPITALS, SERVER, Federation

EVERYBODY = (SERVER, *HOSPITALS)


class Watched(Federation):
    """A federation in which code leaves a mark when it runs.

    It is code of jobs, and a file that Python imports by itself.
    """

    @property
    def ran(self) -> list[str]:
        """The marks."""
        return sorted(path.name for path in (self.folder / "ran").iterdir())

    @property
    def code(self) -> str:
        """A module that leaves a mark."""
        return (
            "import os, pathlib, tempfile\n"
            f"pathlib.Path({str(self.folder / 'ran')!r}, f'{{__name__}} {{os.getpid()}}').touch()\n"
        )

    def provision(self) -> None:
        super().provision()
        (self.folder / "ran").mkdir()
        for name in EVERYBODY:
            (self.kit(name) / "sitecustomize.py").write_text(self.code)
