"""What building the site does not see: links of the pages at the top, the notebook, and names that
no page has.
"""

import ast
import json
import re
import shlex
from importlib.util import module_from_spec, spec_from_file_location
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import fedward
from fedward.cli import main
from fedward.security.policy import Policy
from fedward.storage.rows import LOGS

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")
CLASS = re.compile(r"\b[A-Z]\w+")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    headings = HEADING.findall(re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL))
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_top_page_leads_somewhere(page: str) -> None:
    links = LINK.findall((ROOT / page).read_text())
    lost = []
    for place, anchor in links:
        target = ROOT / (place or page)
        if not target.exists() or (anchor and anchor not in anchors(target)):
            lost.append(f"{place}#{anchor}")
    assert lost == []


def test_a_lost_anchor_would_be_found() -> None:
    assert "what-leaves-a-site" in anchors(ROOT / "docs" / "hospital_it.md")
    assert "fedward-doctor" not in anchors(ROOT / "docs" / "hospital_it.md")


def test_the_reference_has_every_public_name() -> None:
    names = re.findall(
        r"^::: fedward\.[\w.]+\.(\w+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE
    )
    assert set(fedward.__all__) <= set(names)


def test_the_reference_hides_no_field() -> None:
    """A field without a docstring would not be on the page."""
    page = (ROOT / "docs" / "api.md").read_text()
    names = {
        name
        for line in re.findall(r"^::: \S+|members: .*", page, re.MULTILINE)
        for name in CLASS.findall(line)
    }
    modules = {
        place.replace(".", "/")
        for place in re.findall(r"^::: ([a-z_.]+[a-z_])", page, re.MULTILINE)
    }
    paths = [ROOT / "custom" / f"{module}.py" for module in modules]
    files = [path for path in paths if path.exists()]
    classes = [
        node
        for path in files
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
    ]
    assert names <= {each.name for each in classes} | {"View"}  # a name for a type
    hidden = [
        f"{each.name}.{field.target.id}"
        for each in classes
        if each.name in names
        for field, after in pairwise([*each.body, ast.Pass()])
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and not isinstance(after, ast.Expr)
    ]
    assert hidden == []


def test_the_page_of_policies_has_every_rule_with_its_default() -> None:
    page = (ROOT / "docs" / "policy.md").read_text()
    on_page = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", page, re.MULTILINE))
    assert set(on_page) == set(Policy.model_fields)
    defaults = Policy().model_dump()
    in_words = {"methods", "nets", "extensions"}  # lists of names
    for rule in set(on_page) - in_words:
        default = defaults[rule]
        text = default if isinstance(default, str) else json.dumps(default)
        assert on_page[rule].strip("`") == text.removesuffix(".0"), rule


def test_the_page_of_jobs_has_every_log_of_a_run() -> None:
    page = (ROOT / "docs" / "federation_jobs.md").read_text()
    table = page.partition("## What a run folder holds")[2]
    assert [name for name in LOGS if f"`{name}.jsonl`" not in table] == []


def test_the_notebook_learns_what_it_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cells = json.loads((ROOT / "docs" / "notebook.ipynb").read_text())["cells"]
    names: dict[str, Any] = {}
    for cell in (each for each in cells if each["cell_type"] == "code"):
        source = "".join(cell["source"])
        if source.startswith("!fedward "):  # to IPython a command of the shell
            assert main(shlex.split(source)[1:]) == 0
        else:
            exec(source, names)
    assert names["right"].mean() > 0.9
    assert (tmp_path / "runs" / "ssfl" / "report.html").exists()


def test_the_page_of_the_notebook_has_its_outputs() -> None:
    """The site shows what the cells printed and drew when ``make notebook`` ran them last."""
    spec = spec_from_file_location("site_notebook", ROOT / "docs" / "site" / "notebook.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    page = module.page(json.loads((ROOT / "docs" / "notebook.ipynb").read_text()))
    assert "finished after 6 rounds" in page
    assert "of 200 new images are right\n```" in page
    assert '<img alt="Output of the cell" src="data:image/png;base64,' in page
