"""A study's file: what it says, what is refused, and what its cells run."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedward.errors import ConfigError
from fedward.lab.bench.study import Study
from fedward.lab.bench.study_file import read_study
from fedward.lab.bench.study_parts import Cell

ROWS = {
    "lower": {"title": "Lower", "job": "fedavg"},
    "ssfl": {"title": "SSFL", "job": "ssfl", "settings": {"threshold": 0.9}, "sites": "few/{seed}"},
    "once": {"title": "One round", "job": "oneshot", "settings": {"rounds": 1}},
}
FILES = {**ROWS["lower"], "sites": "few"}
OTHER = {**FILES, "title": "Other"}
VARIANTS = {
    "recipe": {"title": "recipe"},
    "cold": {"title": "cold", "settings": {"round_warm_up": 0}, "rows": ["lower", "ssfl"]},
}


def study(**changes: Any) -> Study:
    return Study.model_validate({"title": "t", "rows": ROWS, "seeds": (1, 2), **changes})


def written(folder: Path, **changes: Any) -> Path:
    file = folder / "study.json"
    file.write_text(json.dumps({"title": "t", "rows": ROWS, **changes}))
    return file


def test_cells_come_seed_by_seed_and_variants_change_rows() -> None:
    made = study(variants=VARIANTS).cells()
    assert made[:5] == [Cell("recipe", row, 1) for row in ROWS] + [
        Cell("cold", row, 1) for row in ("lower", "ssfl")
    ]
    assert [cell.seed for cell in made] == [1] * 5 + [2] * 5
    assert study(variants=VARIANTS).cells(["cold"], ["ssfl"]) == [
        Cell("cold", "ssfl", seed) for seed in (1, 2)
    ]


def test_settings_go_to_the_methods_that_have_them() -> None:
    common = study(variants=VARIANTS, settings={"rounds": 5, "threshold": 0.5, "net": "small_cnn"})
    lower, ssfl, once = (common.experiment(Cell("recipe", row, 3)) for row in ROWS)
    assert (lower.options["rounds"], lower.net, lower.seed) == (5, "small_cnn", 3)
    assert "threshold" not in lower.options
    assert (once.options["rounds"], "threshold" in once.options) == (1, False)
    assert ssfl.options["threshold"] == 0.9, "the row's own"
    assert common.experiment(Cell("cold", "ssfl", 3), {"rounds": 2}).options["rounds"] == 2
    assert common.experiment(Cell("cold", "ssfl", 3)).options["round_warm_up"] == 0
    stricter = study(variants={"strict": {"title": "strict", "settings": {"threshold": 0.99}}})
    assert stricter.experiment(Cell("strict", "ssfl", 3)).options["threshold"] == 0.99
    assert "threshold" not in stricter.experiment(Cell("strict", "lower", 3)).options


def test_images_are_as_site_files_say_unless_told_otherwise() -> None:
    cell = Cell("all", "lower", 1)
    said = {"classes": ["a", "b"], "image_size": 64}
    assert study().experiment(cell, data=said).data.classes == ("a", "b")
    sized = study(settings={"data.image_size": 16}).experiment(cell, data=said).data
    assert (sized.classes, sized.image_size) == (("a", "b"), 16)


def test_a_row_also_needs_what_the_rows_that_it_needs_need() -> None:
    needs = {
        "tuned": {"init": "head", "labels": "bought"},
        "head": {"labels": "bought"},
        "bought": {},
        "warm": {"init": "bought"},
    }
    rows = {name: {**FILES, "title": name, **needed} for name, needed in needs.items()}
    made = study(rows=rows)
    assert made.all_needs("bought") == set()
    assert made.all_needs("warm") == {"bought"}
    assert made.all_needs("tuned") == {"head", "bought"}


def test_site_files_are_named_by_seed_and_cut_once() -> None:
    made = study(sites={"few/{seed}": "skin --seed {seed}", "none": "skin"})
    assert made.folder(Cell("all", "ssfl", 7)) == "few/7"
    assert made.folder(Cell("all", "lower", 7)) == ""
    assert made.partitions(made.cells(rows=["ssfl"])) == {
        "few/1": ["skin", "--seed", "1"],
        "few/2": ["skin", "--seed", "2"],
    }
    spaced = study(sites={"few/{seed}": "'my skin' --seed {seed}", "none": "skin"}, seeds=[1])
    assert spaced.partitions(spaced.cells(rows=["ssfl"])) == {"few/1": ["my skin", "--seed", "1"]}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"own": "fedperl"}, "rows named fedperl, which the study does not have"),
        ({"compare": [["lower", "none"]]}, "rows named none"),
        ({"title": 3}, "title: 3, not text in quotes"),
        ({"title": "t\n\n# 20 points better"}, "title: one line without"),
        (
            {"rows": {"lower": {**ROWS["lower"], "title": "a | 5 | 0.9"}}},
            "rows.lower.title: one line",
        ),
        ({"rows": {"lower": {**ROWS["lower"], "title": ""}}}, "rows.lower.title"),
        (
            {"rows": {"lower": {**ROWS["lower"], "title": "reference: the page's own"}}},
            "rows.lower.title: text that does not begin with 'reference: '",
        ),
        (
            {"rows": {"lower": ROWS["lower"], "other": ROWS["lower"]}},
            "2 rows or variants with the title 'Lower'",
        ),
        (
            {"variants": {"one": {"title": "recipe"}, "two": {"title": "recipe"}}},
            "2 rows or variants with the title 'recipe'",
        ),
        ({"variants": {"<b>": {"title": ""}}}, "one line without"),
        ({"communities": {"a|b": ["site-1"]}}, "one line without"),
        ({"colour": "red"}, "colour"),
        ({"settings": {"roundz": 3}}, "settings that some row's method has, found roundz"),
        (
            {"variants": {"v": {"title": "v", "settings": {"stepz": 3}}}},
            "that some row's method has, found stepz",
        ),
        (
            {"rows": {"a": {**FILES, "init": "b"}, "b": {**OTHER, "labels": "a"}}},
            "each needs another one",
        ),
        (
            {"rows": {"a": {**FILES, "alone": True}, "b": {**OTHER, "init": "a"}}},
            "init or labels of b with the row a, which has no model of all sites",
        ),
        (
            {"rows": {"a": ROWS["lower"], "b": {**OTHER, "labels": "a"}}},
            "labels of b without sites: those of synthetic images cannot be bought",
        ),
        ({"seeds": []}, "seeds"),
        ({"seeds": [1, 2, 1]}, "seeds or doubled 1, 2, 1, not each once"),
        ({"doubled": [11, 11]}, "seeds or doubled 11, 11, not each once"),
        ({"settings": {"seed": 3}}, "settings with a seed, which is that of the repetition"),
        (
            {"rows": {"lower": {**ROWS["lower"], "settings": {"seed": 3}}}},
            "settings with a seed, which is that of the repetition",
        ),
        (
            {"variants": {"v": {"title": "v", "settings": {"seed": 3}}}},
            "settings with a seed, which is that of the repetition",
        ),
        ({"metrics": []}, "metrics"),
        ({"metrics": ["acuracy"]}, "metrics acuracy, not some of accuracy"),
        ({"metrics": ["accuracy", "accuracy"]}, "each of them once"),
        ({"metrics": ["ece_adaptive"]}, "metrics ece_adaptive, not some of accuracy"),
        ({"settings": {"key_metric": "recall_weighted"}}, "row lower: expected one of accuracy"),
        (
            {"rows": {"a": {**FILES, "sites": "few/{sed}"}}},
            "sites with another placeholder than {seed}: few/{sed}",
        ),
        ({"sites": {"few/{}": "skin"}}, "another placeholder than {seed}: few/{}"),
        ({"sites": {"few": "skin --seed {seed"}}, "another placeholder than {seed}: skin --seed"),
        ({"sites": {"few": "skin --labeled 1"}}, "unrecognized arguments: --labeled 1"),
        ({"sites": {"few": "skin --labelled 7"}}, "labelled"),
        ({"sites": {"few": "skin --out elsewhere"}}, "partition without --out"),
        ({"sites": {"few": ""}}, "begins with a path below the data folder"),
        (
            {
                "rows": {"a": FILES, "b": {**OTHER, "settings": {"evaluate_every": 3}}},
                "claims": [{"row": "a", "than": "b", "metric": "accuracy", "direction": "higher"}],
            },
            "one rule by which all rows stop",
        ),
        ({"variants": {}}, "variants"),
    ],
)
def test_a_file_with_a_fault_is_refused(
    tmp_path: Path, changes: dict[str, Any], found: str
) -> None:
    with pytest.raises(ConfigError, match=found):
        read_study(written(tmp_path, **changes))


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected a JSON file"):
        read_study(tmp_path / "none.json")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(ConfigError, match="expected a JSON file"):
        read_study(tmp_path / "broken.json")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(ConfigError, match="found text that is nested too deeply"):
        read_study(tmp_path / "deep.json")
    rows = ", ".join(f'"twice": {json.dumps(row)}' for row in (FILES, OTHER))
    (tmp_path / "twice.json").write_text(f'{{"title": "t", "rows": {{{rows}}}}}')
    with pytest.raises(ConfigError, match="found a key that comes twice: 'twice'"):
        read_study(tmp_path / "twice.json")
