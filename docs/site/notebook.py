"""The notebook as a page of the site, and the step that stores its outputs.

As a hook of MkDocs, this module makes ``notebook.md`` from ``notebook.ipynb``. As a script
(``make notebook``), it runs all cells of ``docs/notebook.ipynb`` in a temporary folder and writes
what they print and show into the file.
"""

import ast
import base64
import contextlib
import io
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

NOTEBOOK = Path(__file__).parents[1] / "notebook.ipynb"
ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def on_files(files: Files, config: Any) -> Files:
    """Add the page of the notebook to the site."""
    files.append(
        File.generated(config, "notebook.md", content=page(json.loads(NOTEBOOK.read_text("utf-8"))))
    )
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Lead the links to the notebook to its page; the repository's own pages name the file."""
    return markdown.replace("notebook.ipynb)", "notebook.md)")


def page(notebook: dict[str, Any]) -> str:
    """Return the Markdown of a notebook: its texts, its code, and the outputs stored in it."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        command = source.startswith("!")
        parts.append(f"```sh\n{source[1:]}\n```" if command else f"```python\n{source}\n```")
        parts += [_output(output) for output in cell["outputs"]]
    return "\n\n".join(parts) + "\n"


def _output(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return "```text\n" + "".join(output["text"]).rstrip("\n") + "\n```"
    return (
        f'<img alt="Output of the cell" src="data:image/png;base64,{output["data"]["image/png"]}">'
    )


def execute(notebook: dict[str, Any], folder: Path) -> None:
    """Run the code cells in order in a folder, and store what each prints and shows.

    Cells are plain Python, or one shell command after ``!``. If the last line of a cell is an
    expression, its value is an image of Pillow, which is shown.
    """
    names: dict[str, Any] = {}
    with contextlib.chdir(folder):
        for number, cell in enumerate(
            (cell for cell in notebook["cells"] if cell["cell_type"] == "code"), 1
        ):
            cell["execution_count"] = number
            cell["outputs"] = _run("".join(cell["source"]), names)


def _run(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    if source.startswith("!"):
        done = subprocess.run(source[1:], shell=True, check=True, text=True, stdout=-1, stderr=-2)
        return _stream(done.stdout)
    body = ast.parse(source).body
    shown = body.pop() if isinstance(body[-1], ast.Expr) and not _prints(body[-1]) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        exec(compile(ast.Module(body, []), "cell", "exec"), names)
    outputs = _stream(printed.getvalue())
    if shown is not None:
        picture = io.BytesIO()
        eval(compile(ast.Expression(shown.value), "cell", "eval"), names).save(
            picture, "PNG", optimize=True
        )
        data = {"image/png": base64.b64encode(picture.getvalue()).decode()}
        outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
    return outputs


def _prints(expression: ast.Expr) -> bool:
    """Return whether an expression is a call for its effect, such as ``print(...)``."""
    call = expression.value
    return isinstance(call, ast.Call) and ast.unparse(call.func) in ("print", "np.savez")


def _stream(text: str) -> list[dict[str, Any]]:
    """Return what was printed as a notebook's output, without colours and the folder's name."""
    plain = ESCAPES.sub("", text).replace(os.getcwd(), "/home/you/fedward")
    lines = [line.rsplit("\r", 1)[-1] for line in plain.split("\n")]
    if not plain.strip():
        return []
    return [
        {
            "output_type": "stream",
            "name": "stdout",
            "text": "\n".join(lines).splitlines(keepends=True),
        }
    ]


def main() -> None:
    """Run the notebook and store its outputs."""
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        execute(notebook, Path(folder))
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
