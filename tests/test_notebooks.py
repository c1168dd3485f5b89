"""Every notebook is a page: it has its outputs, its parameters, texts for its images, and refuses bad input at once."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from carry_core.errors import BadInput
from carry_core.ledger import claims

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PAGES = sorted((ROOT / "book").glob("*.md"))
LEDGER = ("claims", "figure_by_figure")  # show the committed results of both sources, and so need no group
GLUED = re.compile(r"::(\w+)(?::|`)|\{glue:any\} (\w+)")


def read(path: Path) -> Any:
    return nbformat.read(path, 4)


def code(path: Path) -> list[Any]:
    return [cell for cell in read(path).cells if cell.cell_type == "code"]


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_the_first_cell_of_code_has_the_parameters(notebook: Path):
    first, *others = code(notebook)
    assert first.metadata.tags == ["parameters"]
    assert not any("injected-parameters" in cell.metadata.get("tags", []) for cell in others)
    values: dict[str, Any] = {}
    exec(first.source, values)
    if notebook.stem in LEDGER:
        assert {name: value for name, value in values.items() if not name.startswith("__")} == {"source": None}
    else:
        assert values["source"] == "ours"
        assert isinstance(values["group"], str)


def test_it_is_stored_with_its_outputs_and_without_errors(notebook: Path):
    first, *others = code(notebook)
    assert all(cell.execution_count for cell in (first, *others))
    kinds = [output.output_type for cell in others for output in cell.outputs]
    assert "display_data" in kinds
    assert set(kinds) <= {"display_data"}  # neither errors, nor warnings, nor the repr of an object
    told = ["".join(output.data.get("text/markdown", "")) for cell in others for output in cell.outputs]
    assert not any(".ipynb" in text for text in told)  # Sphinx resolves no links in outputs
    assert "papermill" not in read(notebook).metadata


def test_every_image_says_what_can_be_seen_in_it(notebook: Path):
    for cell in code(notebook):
        for output in cell.outputs:
            images = [kind for kind in output.get("data", {}) if kind.startswith("image/")]
            shown = cell.metadata.get("mystnb", {}).get("image", {})  # pages that are still to be rewritten
            assert all(len(output.metadata.get(kind, shown)["alt"]) > 40 for kind in images)
            assert all(len(output.data[kind]) < 1_000_000 for kind in images)


def test_its_second_cell_checks_its_parameters_and_stops_with_one_line(notebook: Path):
    parameters, check, *_ = code(notebook)
    assert "nbval-ignore-output" not in str(read(notebook))
    values: dict[str, Any] = {}
    exec(parameters.source, values)
    with pytest.raises(BadInput, match="Unknown source 'authr': expected 'ours'") as error:
        exec(check.source, values | {"source": "authr"})
    assert "\n" not in str(error.value)


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


def test_one_group_may_be_given_for_a_list_of_them():
    (path,) = [path for path in NOTEBOOKS if path.stem.startswith("app_h_")]
    parameters, check, *_ = code(path)
    values: dict[str, Any] = {}
    exec(parameters.source, values)
    values["primed"] = "pad6_primed100_n2_s0.3_w0.2"
    exec(check.source, values)
    assert list(values["loaded"]) == [values["group"], "pad6_primed100_n2_s0.3_w0.2"]


# ---------------------------------------------------------------- the ledger

# Facts that need no weights, and rows of 7B models, which the recordings' pages write.
ELSEWHERE = ("data/", "tab2/", "llm/")


def families(name: str) -> list[str]:
    """An id, and of a table's cell what is before its slashes: a page may show a table by its name."""
    parts = name.split("/")
    return ["/".join(parts[:n]) for n in range(2, len(parts))] + [name] if name.startswith("tab") else [name]


def test_it_shows_the_rows_that_the_ledger_says_it_shows(notebook: Path):
    tables = ["".join(output.data.get("text/html", "")) for cell in code(notebook) for output in cell.outputs]
    shown = "\n".join([*(cell.source for cell in code(notebook)), *tables])
    mine = [claim.id for claim in claims.claims().values() if claim.notebook == notebook.stem]
    judged = [name for name in mine if not name.startswith(ELSEWHERE)]
    assert [name for name in judged if not any(family in shown for family in families(name))] == []


# ---------------------------------------------------------------- prose


def test_every_number_that_a_page_glues_in_is_computed_by_a_notebook():
    glued = {
        output_key.rsplit(".", 1)[-1]
        for path in NOTEBOOKS
        for cell in code(path)
        for output in cell.outputs
        for output_key in [output.get("metadata", {}).get("scrapbook", {}).get("name", "")]
    }
    wanted = {key for page in PAGES for found in GLUED.findall(page.read_text()) for key in found if key}
    assert wanted
    assert wanted <= glued


def test_the_example_of_the_reading_page_runs(capsys: pytest.CaptureFixture[str]):
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "book" / "reading.md").read_text(), re.DOTALL)
    assert len([line for line in example.splitlines() if line.strip()]) <= 10
    exec(example, {})
    assert "without MLP 1" in capsys.readouterr().out


def test_the_commands_of_the_reading_page_name_notebooks_and_their_parameters():
    page = (ROOT / "book" / "reading.md").read_text()
    commands = re.findall(r"papermill (\S+\.ipynb) \S+((?: -p \w+ \S+)+)", page)
    assert len(commands) >= 3
    for path, parameters in commands:
        values: dict[str, Any] = {}
        exec(code(ROOT / "notebooks" / path)[0].source, values)
        assert set(re.findall(r"-p (\w+)", parameters)) <= values.keys()


def test_every_work_that_is_cited_is_listed_and_every_work_listed_is_cited():
    listed = set(re.findall(r"^@\w+\{(\w+),", (ROOT / "book" / "references.bib").read_text(), re.MULTILINE))
    texts = [page.read_text() for page in PAGES] + [json.dumps(read(path)) for path in NOTEBOOKS]
    cited = {
        key for text in texts for keys in re.findall(r"\{cite\}`([\w, ]+)`", text) for key in re.split(r", *", keys)
    }
    assert cited == listed
