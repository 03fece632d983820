"""The files of a cut: one for each site, and the CSVs that belong to these."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedward.disk import replacing
from fedward.lab.partition.out_folder import another_cut
from fedward.lab.partition.pool import Cut, Pool
from fedward.sites.site_file import SERVER
from fedward.yaml_text import write_yaml


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
