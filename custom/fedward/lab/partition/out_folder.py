"""The folder that a cut is written into: what it may hold already, and what is removed from it."""

from collections.abc import Mapping
from pathlib import Path

from fedward.disk import unwritable
from fedward.errors import ConfigError, DataError, option
from fedward.lab.partition.all_sites import EVALUATION, POOLED
from fedward.lab.partition.left_out import LEFT_OUT_FILE, is_left_out_table
from fedward.lab.partition.source import table_of
from fedward.lab.partition.wanted import Wanted
from fedward.sites.data_file import MEASURING_CUT
from fedward.sites.files import resolved
from fedward.sites.site_file import SERVER, ManifestSite, read_site_file, site_files


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


def refuse_another_cut(source: Path, out: Path, wanted: Wanted) -> None:
    """Refuse a folder with site files that cannot be of this cut, before the images are opened.

    A site file does not say how its images were drawn: of a cut by other values of ``by``,
    ``gamma``, ``val`` or ``test`` only the new files tell, once all images are opened. They are
    compared by :func:`fedward.lab.partition.write.write_files`.

    Args:
        source: the data set.
        out: folder of the site files.
        wanted: how it is to be cut.

    Raises:
        ConfigError: a site has another name, data, seed or share.
    """
    place = _place_of_images(source, wanted)
    shares = _possible_shares(wanted)
    names = _possible_sites(wanted)
    for file_name in site_files([out]):
        try:
            file = read_site_file(out / file_name)
        except DataError:  # Nobody knows what it was: the comparison with the new files decides.
            continue
        its_place = file.folder if isinstance(file, ManifestSite) else file.file
        is_of_it = (
            resolved(its_place) == resolved(place)
            and file.split.seed == wanted.seed
            and file.labelled in shares
            and (names is None or file.site in names)
        )
        if not is_of_it:
            raise another_cut(out, file_name)


def _place_of_images(source: Path, wanted: Wanted) -> Path:
    """Return the folder of the images, or the npz file."""
    table = table_of(source)
    if table:
        return wanted.images or table.parent
    return source


def _possible_shares(wanted: Wanted) -> set[float]:
    """Return the shares of its training labels that a site of a cut may see."""
    shares = {wanted.labelled}
    if wanted.labelled_sites is not None:
        shares.add(0.0)
    if wanted.evaluate_together:
        shares.add(1.0)
    return shares


def _possible_sites(wanted: Wanted) -> set[str] | None:
    """Return the names of the sites of a cut; None if only the data set tells them."""
    if wanted.by is not None or wanted.sites is None:
        return None
    names = {f"site-{number}" for number in range(1, wanted.sites + 1)}
    if wanted.pooled:
        names.add(POOLED)
    if wanted.evaluate_together:
        names.add(EVALUATION)
    return names


def refuse_other_sites(texts: Mapping[Path, str], out: Path) -> None:
    """Raise ConfigError if the folder has site files of another cut.

    Args:
        texts: the files of this cut.
        out: folder they are for.
    """
    other_files = [name for name in site_files([out]) if out / name not in texts]
    if other_files:
        raise another_cut(out, ", ".join(other_files))


def refuse_server_of_another_cut(texts: Mapping[Path, str], out: Path) -> None:
    """Raise ConfigError if the folder has a server's file that may hold images of these sites.

    A file that was added to a finished cut stays: then the sites' files are already there, as they
    would be written.

    Args:
        texts: the files of the sites, and of the server if it has a share.
        out: folder they are for.
    """
    server_file = out / f"{SERVER}.yaml"
    if server_file in texts or not server_file.exists():
        return
    if all(path.exists() and path.read_bytes() == text.encode() for path, text in texts.items()):
        return
    raise ConfigError(
        f"{server_file}",
        "Delete it if it is of an earlier cut, or name another folder. If you wrote it yourself, "
        "add it after the sites are cut.",
        expected="no images of the server, as this cut gives it none",
        found="a file, whose images may be those of a site now",
    )


def remove_what_is_left(texts: Mapping[Path, str], out: Path) -> None:
    """Remove files that an earlier cut into a folder has left, and this one does not have.

    Args:
        texts: the files of this cut.
        out: folder they are in.
    """
    measuring_cut = out / MEASURING_CUT
    if measuring_cut not in texts:
        measuring_cut.unlink(missing_ok=True)
    left_out = out / LEFT_OUT_FILE
    if left_out not in texts and is_left_out_table(left_out):
        left_out.unlink()


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
