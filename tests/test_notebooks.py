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
from carry_core.ledger import published

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PAGES = sorted((ROOT / "book").glob("*.md"))
MAX_LINES, MAX_BYTES = 60, 1_500_000
LEDGER = "claims"  # shows the committed results of both sources, and so needs no group
BAD = [
    *[("source", "authr"), ("group", "n9"), ("run", 99), ("n_examples", -1), ("n_examples", None)],
    *[("seed", -1), ("seed", 2**63), ("seed", None), ("seed", "one")],
]
# Values that are of the right kind, and that the page has no use for: the notebook, its parameters, the complaint.
USELESS = [
    *[(f"fig{n}", {"group": "n1_s0.3_w0.2"}, "2 layers or more") for n in ("18", "19", "23")],
    ("fig21", {"group": "n1_s0.3_w0.2", "epoch": None}, "2 layers or more"),
    *[(f"fig{n}", {"classes": "all", "n_examples": 50}, "n_examples=50: expected 89 or more") for n in ("22", "24")],
    ("fig20", {"primed": "n2_s0.3_w0.2"}, "n2_s0.3_w0.2 has no longer sums: expected a padded group"),
    ("fig20", {"primed": "pad10_primed500_n2_s0.3_w0.2"}, "expected groups with as many long positions"),
    *[(n, {"group": "n2_s0.3_w0.2"}, "n2_s0.3_w0.2 has no decoders: expected") for n in ("tab05", "fig15", "fig16")],
    ("fig18", {"classes": 5}, "classes=5 for sums of 4 digits: expected"),
    ("beyond_74", {"step": 10**6}, "step=1000000: expected a whole number"),
    ("tab05", {"n_examples": 10}, "n_examples=10: expected more sums"),
    ("app_h", {"primed": 7}, "7: expected a group"),
    ("app_h", {"primed": {"a": 1}}, "expected a group"),
    ("app_h", {"primed": "n2_s0.3_w0.2"}, "n2_s0.3_w0.2 has no longer sums: expected a padded group"),
]
GLUED = re.compile(r"::(\w+)(?::|`)|\{glue:any\} (\w+)")


def read(path: Path) -> Any:
    return nbformat.read(path, 4)


def code(path: Path) -> list[Any]:
    return [cell for cell in read(path).cells if cell.cell_type == "code"]


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_there_are_notebooks():
    assert NOTEBOOKS


def test_it_is_short_and_light(notebook: Path):
    lines = [line for cell in code(notebook) for line in cell.source.splitlines() if line.strip()]
    assert len(lines) <= MAX_LINES
    assert notebook.stat().st_size < MAX_BYTES


def test_the_first_cell_of_code_has_the_parameters(notebook: Path):
    first, *others = code(notebook)
    assert first.metadata.tags == ["parameters"]
    assert not any("injected-parameters" in cell.metadata.get("tags", []) for cell in others)
    values: dict[str, Any] = {}
    exec(first.source, values)
    if notebook.stem == LEDGER:
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


def test_every_image_has_a_text_a_caption_and_a_label(notebook: Path):
    for cell in code(notebook):
        if any("image/svg+xml" in output.get("data", {}) for output in cell.outputs):
            shown = cell.metadata.mystnb
            assert len(shown.image.alt) > 40
            assert len(shown.figure.caption) > 40
            assert shown.figure.name.startswith("fig-")
            assert len(cell.outputs) == 1  # each output of such a cell would get the figure's label
        assert not any("image/png" in output.get("data", {}) for output in cell.outputs)


def refused(path: Path, given: dict[str, Any]) -> str:
    """The one line with which the second cell stops."""
    parameters, check, *_ = code(path)
    values: dict[str, Any] = {}
    exec(parameters.source, values)
    with pytest.raises(BadInput, match="expected") as error:
        exec(check.source, values | given)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("path", "name", "value"),
    [(path, *bad) for path in NOTEBOOKS for bad in BAD if f"\n{bad[0]} = " in f"\n{code(path)[0].source}"],
    ids=lambda value: value.stem if isinstance(value, Path) else str(value),
)
def test_a_wrong_parameter_stops_the_second_cell_with_one_line(path: Path, name: str, value: Any):
    assert str(value) in refused(path, {name: value})


@pytest.mark.parametrize(("number", "given", "complaint"), USELESS)
def test_a_parameter_of_which_nothing_can_be_shown_stops_it_too(number: str, given: dict[str, Any], complaint: str):
    (path,) = [path for path in NOTEBOOKS if f"{path.stem}_".startswith(f"{number}_")]
    assert complaint in refused(path, given)


def test_papermill_stops_with_the_line_too(tmp_path: Path):
    command = [
        sys.executable,
        "-m",
        "papermill",
        str(next(path for path in NOTEBOOKS if path.stem != LEDGER)),
        str(tmp_path / "out.ipynb"),
        "-p",
        "source",
        "authr",
    ]
    result = subprocess.run([*command, "--no-progress-bar"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "BadInput: Unknown source 'authr': expected 'ours' or 'author'." in result.stderr
    ran = [cell for cell in code(tmp_path / "out.ipynb") if cell.execution_count]
    assert len(ran) <= 4
    shown = [output.traceback for output in ran[-1].outputs if output.output_type == "error"]
    assert shown == [["BadInput: Unknown source 'authr': expected 'ours' or 'author'."]]


def test_one_group_may_be_given_for_a_list_of_them():
    (path,) = [path for path in NOTEBOOKS if path.stem.startswith("app_h_")]
    parameters, check, *_ = code(path)
    values: dict[str, Any] = {}
    exec(parameters.source, values)
    values["primed"] = "pad6_primed100_n2_s0.3_w0.2"
    exec(check.source, values)
    assert list(values["shown"]) == [values["group"], "pad6_primed100_n2_s0.3_w0.2"]


# ---------------------------------------------------------------- the ledger

# Facts that need no weights, and rows of 7B models, which `plots.table_of_models` and the recordings' pages write.
ELSEWHERE = ("data/", "tab2/", "llm/")


def families(name: str) -> list[str]:
    """An id, and of a table's cell what is before its slashes: a page may show a table by its name."""
    parts = name.split("/")
    return ["/".join(parts[:n]) for n in range(2, len(parts))] + [name] if name.startswith("tab") else [name]


def test_only_a_table_may_be_shown_by_its_name():
    assert families("finding/biases") == ["finding/biases"]
    assert families("n2/dissection/neurons") == ["n2/dissection/neurons"]
    assert families("tab1/final_mlp/NC/accuracy/pos7")[0] == "tab1/final_mlp"


def test_it_shows_the_rows_that_the_ledger_says_it_shows(notebook: Path):
    tables = ["".join(output.data.get("text/html", "")) for cell in code(notebook) for output in cell.outputs]
    shown = "\n".join([*(cell.source for cell in code(notebook)), *tables])
    mine = [claim.id for claim in published.claims().values() if claim.notebook == notebook.stem]
    judged = [name for name in mine if not name.startswith(ELSEWHERE)]
    assert [name for name in judged if not any(family in shown for family in families(name))] == []


# ---------------------------------------------------------------- prose


def test_every_number_that_a_page_glues_in_is_computed_by_a_notebook():
    glued = {
        output_key.rsplit(".", 1)[-1]
        for path in NOTEBOOKS
        for cell in code(path)
        for output in cell.outputs
        for output_key in [output.metadata.get("scrapbook", {}).get("name", "")]
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
