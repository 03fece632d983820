"""The files of a cut: one for each site, and the CSVs that belong to these."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from fedward.errors import ConfigError, DataError, option
from fedward.lab.partition.pool import Cut, Pool
from fedward.sites.files import resolved
from fedward.sites.site_file import SERVER, ManifestSite, read_site_file, site_files
from fedward.storage.disk import replacing, unwritable
from fedward.yaml_text import write_yaml

POOLED = "pooled"
"""Name of the site that trains on the images of all."""


def site_texts(
    pool: Pool, cut: Cut, labelled: Sequence[float], out: Path, seed: int = 0, oracle: bool = False
) -> dict[Path, str]:
    """Return the site files of a cut, and the CSVs that belong to them.

    Paths in them are absolute, so that a copy of a site file, in a startup kit for example, finds
    its data.

    Args:
        pool: what is cut.
        cut: site -> split -> rows.
        labelled: share in [0, 1] of its training labels that each site sees, in the cut's order.
        out: folder they are for.
        seed: decides which labels each site sees.
        oracle: whether the data's own labels answer a job that asks for labels; none asks the
            server.
    """
    texts: dict[Path, str] = {}
    for (site, site_rows), share in zip(cut.items(), labelled, strict=True):
        listing = pool.listing(site, site_rows, out)
        if listing.table:
            texts[out / f"{site}.csv"] = listing.table
        content = {
            **listing.content,
            "labelled": share,
            **listing.chosen,
            "split": {"seed": seed},
        }
        if pool.subgroups:
            content["subgroups"] = dict(pool.subgroups)
        if oracle and site != SERVER:
            content["annotation"] = "oracle"
        texts[out / f"{site}.yaml"] = write_yaml(
            content, sort_keys=False, default_flow_style=None, allow_unicode=True
        )
    return texts


def require_writable(out: Path) -> None:
    """Refuse a folder that cannot be made or written, before the images are opened.

    Raises:
        ConfigError: it is below a file, is a file itself, or may not be written.
    """
    reason = unwritable(out)
    if reason:
        raise ConfigError(
            option("out", out),
            "Name another folder.",
            expected="a folder that can be written",
            found=reason,
        )


def another_cut(out: Path, found: str) -> ConfigError:
    """Return the error for a folder that holds something else than the files of this cut.

    ``found``: names of files, and what is wrong with them.
    """
    return ConfigError(
        f"{out}",
        f"The folder holds another cut: delete it, or name another {option('out')}.",
        expected="no site files, or those of this cut",
        found=f"{found:.200}",
    )


def refuse_another_cut(
    out: Path, place: Path, seed: int, shares: Collection[float], names: Collection[str]
) -> None:
    """Refuse a folder with site files that cannot be of this cut, before the images are opened.

    What only the images tell is compared by :func:`write_files`.

    Args:
        out: folder of the site files.
        place: folder of the images, or the npz file.
        seed: of the cut.
        shares: of the training labels that a site may see.
        names: of the sites that there may be; empty: any.

    Raises:
        ConfigError: a site has another name, data, seed or share.
    """
    for file_name in site_files([out]):
        try:
            file = read_site_file(out / file_name)
        except DataError:  # Nobody knows what it was: the comparison with the new files decides.
            continue
        its_place = file.folder if isinstance(file, ManifestSite) else file.file
        is_of_it = (
            resolved(its_place) == resolved(place)
            and file.split.seed == seed
            and file.labelled in shares
            and (not names or file.site in names)
        )
        if not is_of_it:
            raise another_cut(out, file_name)


def write_files(texts: Mapping[Path, str]) -> None:
    """Write files with their folders, one after the other; each appears whole.

    Where this was interrupted, the same call writes what is missing.

    Raises:
        ConfigError: one of them exists with other content, perhaps edited by hand; nothing is
            written.
    """
    for path, text in texts.items():
        if path.exists() and path.read_bytes() != text.encode():
            raise another_cut(path.parent, f"{path.name}, of another cut or edited by hand")
    for path, text in texts.items():
        if path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as new_file:
            new_file.write_bytes(text.encode())
