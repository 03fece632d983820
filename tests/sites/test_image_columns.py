"""Which column of a CSV holds the images, and which one is proposed."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from PIL import Image

from fedward.errors import ConfigError, DataError
from fedward.sites.any_csv import read_image_list
from fedward.sites.image_columns import image_column


def column(folder: Path, text: str, named: Mapping[str, str]) -> str:
    """Return the column of images of a CSV with this text, beside the image 0.png."""
    path = folder / "list.csv"
    path.write_text(text)
    Image.new("L", (20, 20), 7).save(folder / "0.png")
    records, _, header = read_image_list(path)
    return image_column(path, folder, header, records, named)


@pytest.mark.parametrize(
    ("header", "named", "expected"),
    [
        ("file,note", {}, "file"),
        ("scan,note", {"image": "scan"}, "scan"),
        ("file,note", {"image": "file", "label": ""}, "file"),
    ],
)
def test_a_named_column_or_one_of_a_known_name_is_taken(tmp_path, header, named, expected):
    assert column(tmp_path, f"{header}\n0.png,a\n", named) == expected


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"image": "scn"}, "found scn (did you mean scan?). Write --columns image=scan, or"),
        # The nearest name is that of a column without images.
        ({"image": "notes"}, "found notes (did you mean note?). Write --columns image=scan, or"),
        (
            {"image": "x", "group": "note"},
            "found x. Write --columns image=scan group=note, or",
        ),
        ({"label": "y"}, "found y. Name one of them."),
        ({"imag": "scan"}, "found imag (did you mean image?)."),
    ],
)
def test_the_likeliest_column_is_proposed_for_one_that_the_csv_lacks(tmp_path, named, said):
    with pytest.raises(ConfigError) as caught:
        column(tmp_path, "scan,note\n0.png,a\n", named)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("cell", "proposed"), [("0.png", "scan"), ("elsewhere/1.png", "scan"), ("x", "NAME")]
)
def test_the_column_that_names_images_is_proposed_where_no_name_is_known(tmp_path, cell, proposed):
    with pytest.raises(DataError, match=f"as in --columns image={proposed}\\."):
        column(tmp_path, f"scan,note\n{cell},a\n", {})
