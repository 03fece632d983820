"""What the name of a cell, and of a certificate, says.

FLARE's cells are named by paths with dots: ``server``, ``hospital-a``, and ``hospital-a.ID`` for
the process of the job with that id. A console has a name that is new each time.
"""

import uuid
from typing import Any, Literal

from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.utils.admin_name_utils import is_valid_admin_client_name

Place = Literal["server", "server job", "site", "site job", "user"]
"""What a cell is: the process of a server or a site, the process of a job there, or a console."""

_FETCHING_PREFIX = "ws_transfer_"
"""Beginning of the name of a job's cell while it fetches its files."""


def place_of(name: str) -> Place | None:
    """Return what kind of cell a name belongs to.

    None for a cell that no federation of fedward has, such as a relay.
    """
    if is_valid_admin_client_name(name):
        return "user"
    path = FQCN.split(name)
    on_server = path[0] == FQCN.ROOT_SERVER
    if len(path) == 1:
        return "server" if on_server else "site"
    if len(path) == 2 and is_job_id(path[1].removeprefix(_FETCHING_PREFIX)):
        return "server job" if on_server else "site job"
    return None


def is_job_id(value: Any) -> bool:
    """Return whether a value is a job's id as FLARE writes it, and so may name a job's folder."""
    try:
        return isinstance(value, str) and str(uuid.UUID(value)) == value
    except ValueError:
        return False


def owner_of(name: str) -> str:
    """Return the name of the site, server or user that a cell belongs to."""
    return str(FQCN.split(name)[0])


def job_id_of(name: str) -> str | None:
    """Return the id of the job that a cell belongs to; None unless it is a job's cell."""
    if place_of(name) not in ("server job", "site job"):
        return None
    return str(FQCN.split(name)[1]).removeprefix(_FETCHING_PREFIX)


def is_person(certificate: str | None) -> bool:
    """Return whether a certificate is a person's, by its common name.

    FLARE's tools certify persons by their e-mail address, and no server and no site with an ``@``.
    """
    return certificate is not None and "@" in certificate
