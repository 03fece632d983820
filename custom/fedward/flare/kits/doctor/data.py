"""Checks of the images that a participant's site file names: are they where it says?"""

from pathlib import Path

from fedward.errors import DataError
from fedward.flare.kits.doctor.layout import is_prepared
from fedward.flare.kits.doctor.rows import Row, broken, done, warning
from fedward.flare.kits.kit import Kit
from fedward.sites.check import opened
from fedward.sites.site_file import SERVER, find_site_file


def check(kit: Kit) -> list[Row]:
    """Open what the file in ``local`` names; images and labels are looked at by the check of a site
    file.
    """
    site = kit.role == "site"
    file = find_site_file(kit.name if site else SERVER, [kit.local])
    if file:
        more = (
            f"check it too: fedward doctor {file.name}"
            if site
            else "the server's own images, which are public"
        )
        return [_opened(kit, file, more)]
    if not site:
        return []  # few jobs need images at the server
    expected = "local/fedward_site.yaml, which names this site's data"
    found = "no such file: clinical jobs fail here"
    return [
        warning(
            "data",
            expected=expected,
            found=found,
            remedy="Write it, and check it with fedward doctor.",
        )
    ]


def _opened(kit: Kit, file: Path, more: str) -> Row:
    try:
        found = opened(file)
    except DataError as error:
        if not is_prepared(kit):
            return broken("data", error)
        remedy = "Where jobs run in containers, the paths are those in there: look whether they are mounted."
        return warning(
            "data", expected=error.expected, found=f"{error.problem}: {error.found}", remedy=remedy
        )
    return done("data", f"local/{file.name}: {found}\n{more}")
