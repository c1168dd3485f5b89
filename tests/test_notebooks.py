"""Every notebook is a page: it has its outputs, its parameters, texts for its images, and refuses bad input at once."""

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import IPython.display
import nbformat
import pytest

from carry_core.errors import BadInput
from carry_core.ledger import claims

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PAGES = sorted((ROOT / "book").glob("*.md"))
LEDGER = ("claims", "figure_by_figure")  # show the committed results of both sources, and so need no group


@cache
def read(path: Path) -> Any:
    return nbformat.read(path, 4)


def code(path: Path) -> list[Any]:
    return [cell for cell in read(path).cells if cell.cell_type == "code"]


def outputs(path: Path) -> list[Any]:
    return [output for cell in code(path) for output in cell.outputs]


def parameters(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = {}
    exec(code(path)[0].source, values)
    return values


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_it_is_stored_with_its_parameters_its_outputs_and_texts_for_its_images(notebook: Path):
    first, *others = code(notebook)
    assert first.metadata.tags == ["parameters"]
    assert parameters(notebook)["source"] == (None if notebook.stem in LEDGER else "ours")
    assert all(cell.execution_count for cell in (first, *others))
    assert not any("injected-parameters" in cell.metadata.get("tags", []) for cell in others)
    assert {output.output_type for output in outputs(notebook)} == {"display_data"}  # no errors, warnings, reprs
    for output in outputs(notebook):
        for kind in (kind for kind in output.data if kind.startswith("image/")):
            assert len(output.metadata[kind]["alt"]) > 40
            assert len(output.data[kind]) < 1_000_000


def test_its_second_cell_checks_its_parameters_and_stops_with_one_line(notebook: Path):
    assert "nbval-ignore-output" not in str(read(notebook))
    with pytest.raises(BadInput, match="Unknown source 'authr': expected 'ours'"):
        exec(code(notebook)[1].source, parameters(notebook) | {"source": "authr"})


def test_papermill_stops_with_the_line_too(tmp_path: Path):
    out = tmp_path / "out.ipynb"
    path = next(path for path in NOTEBOOKS if path.stem not in LEDGER)
    command = [sys.executable, "-m", "papermill", path, out, "-p", "source", "authr", "--no-progress-bar"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "BadInput: Unknown source 'authr': expected 'ours' or 'author'." in result.stderr
    ran = [cell for cell in code(out) if cell.execution_count]
    shown = [output.traceback for output in ran[-1].outputs if output.output_type == "error"]
    assert shown == [["BadInput: Unknown source 'authr': expected 'ours' or 'author'."]]


def test_a_page_is_made_again_with_another_group_and_run(monkeypatch):
    """Its code as papermill would run it, in this process; the few sums keep it short."""
    shown: list[Any] = []
    monkeypatch.setattr(IPython.display, "display", lambda *data, **_: shown.extend(data))
    (path,) = (path for path in NOTEBOOKS if path.stem.startswith("fig03"))
    values = parameters(path) | {"group": "n2_s0.1_w0.2", "run": 5, "n_examples": 40}
    for cell in code(path)[1:]:
        exec(cell.source, values)
    assert shown
    assert values["maps"]["run"] == 5


def families(name: str) -> list[str]:
    """An id, and of a table's cell what is before its slashes: a page may show a table by its name."""
    parts = name.split("/")
    return ["/".join(parts[:n]) for n in range(2, len(parts))] + [name] if name.startswith("tab") else [name]


def test_it_shows_the_rows_that_the_ledger_says_it_shows(notebook: Path):
    """But for facts that need no weights, and rows of 7B models, which the recordings' pages write."""
    tables = ["".join(output.data.get("text/html", "")) for output in outputs(notebook)]
    shown = "\n".join([*(cell.source for cell in code(notebook)), *tables])
    mine = [claim.id for claim in claims.claims().values() if claim.notebook == notebook.stem]
    judged = [name for name in mine if not name.startswith(("data/", "tab2/", "llm/"))]
    assert [name for name in judged if not any(family in shown for family in families(name))] == []


def test_every_number_that_a_page_glues_in_is_computed_by_a_notebook():
    names = [o.metadata.get("scrapbook", {}).get("name", "") for path in NOTEBOOKS for o in outputs(path)]
    glued = re.compile(r"::(\w+)(?::|`)|\{glue:any\} (\w+)")
    wanted = {key for page in PAGES for found in glued.findall(page.read_text()) for key in found if key}
    assert wanted
    assert wanted <= {name.rsplit(".", 1)[-1] for name in names}


def test_every_work_that_is_cited_is_listed_and_every_work_listed_is_cited():
    listed = set(re.findall(r"^@\w+\{(\w+),", (ROOT / "book" / "references.bib").read_text(), re.MULTILINE))
    texts = [page.read_text() for page in PAGES] + [json.dumps(read(path)) for path in NOTEBOOKS]
    cited = [keys for text in texts for keys in re.findall(r"\{cite\}`([\w, ]+)`", text)]
    assert {key for keys in cited for key in re.split(r", *", keys)} == listed
