"""Contents decide which pages are stale, and the comparison of executed notebooks sees numbers."""

import os
from pathlib import Path

import executed
import inputs
import nbformat
import part
import pytest

from carry_core.files import ROOT

pytestmark = pytest.mark.machine


def notebook(
    *texts: str, svg: str = "<?xml 1 </svg>", tags: tuple[str, ...] = ()
) -> nbformat.NotebookNode:
    outputs = [nbformat.v4.new_output("display_data", {"text/markdown": text}) for text in texts]
    outputs.append(
        nbformat.v4.new_output("display_data", {"image/svg+xml": svg, "text/plain": "<a figure>"})
    )
    cell = nbformat.v4.new_code_cell("1", outputs=outputs, metadata={"tags": list(tags)})
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# A page"), cell])


def test_a_number_that_differs_is_found_whatever_the_cells_tags():
    (difference,) = executed.differences(
        notebook("0.50", tags=("nbval-ignore-output",)), notebook("0.51")
    )
    assert "-0.50" in difference
    assert "+0.51" in difference
    assert executed.differences(notebook("0.50"), notebook("0.50", "more"))
    assert executed.differences(notebook("0.50"), notebook())


def test_coordinates_of_figures_may_differ_and_nothing_else():
    assert executed.differences(notebook("0.50"), notebook("0.50", svg="<?xml 2\n </svg>")) == []
    bare = notebook("0.50")
    bare.cells[1].outputs.pop()
    assert executed.differences(notebook("0.50"), bare)


def page_with(picture: str, alt: str) -> nbformat.NotebookNode:
    """A page of ours with one picture of another page, and an alternative text."""
    page = nbformat.read(ROOT / "notebooks" / f"{picture}.ipynb", 4)
    outputs = [output for cell in executed.code_cells(page) for output in cell.outputs]
    data = next(output.data for output in outputs if "image/png" in output.get("data", {}))
    picture = {"image/png": data["image/png"], "text/plain": "<a figure>"}
    output = nbformat.v4.new_output("display_data", picture, metadata={"image/png": {"alt": alt}})
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1", outputs=[output])])


def test_another_picture_or_alternative_text_is_found():
    ours = page_with("fig05_mlp_evolution", "A curve")
    assert executed.differences(ours, page_with("fig05_mlp_evolution", "A curve")) == []
    (text,) = executed.differences(ours, page_with("fig05_mlp_evolution", "A map"))
    assert text.startswith("cell 0, metadata:")
    (text,) = executed.differences(ours, page_with("fig20_length_generalisation", "A curve"))
    assert text == "cell 0, image/png: another picture"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("carry_core/model.py", "data/claims.yml", "data/runs/a/run0.safetensors"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("old")
    (tmp_path / "notebooks").mkdir()
    nbformat.write(notebook("0.50"), tmp_path / "notebooks" / "fig.ipynb")
    return tmp_path


def digest(root: Path) -> str:
    inputs.shared.cache_clear()
    return inputs.notebook("fig", root)


@pytest.mark.parametrize(
    "name", ["carry_core/model.py", "data/claims.yml", "data/runs/a/run0.safetensors"]
)
def test_other_contents_are_stale_with_an_older_clock_too_and_a_touch_is_not(root, name):
    before, path = digest(root), root / name
    path.touch()
    assert digest(root) == before
    path.write_text("new")
    os.utime(path, (0, 0))
    assert digest(root) != before


def test_a_notebook_is_stale_by_its_code_and_not_by_its_outputs(root):
    before, path = digest(root), root / "notebooks" / "fig.ipynb"
    written = nbformat.read(path, 4)
    written.cells[1].outputs = []
    nbformat.write(written, path)
    assert digest(root) == before
    written.cells[1].source = "2"
    nbformat.write(written, path)
    assert digest(root) != before


def test_the_parts_of_the_book_are_all_of_it():
    names = [
        path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "notebooks").glob("*.ipynb"))
    ]
    parts = [part.notebooks(k, 8) for k in range(1, 9)]
    assert sorted(name for part_names in parts for name in part_names) == names
    assert {len(part_names) for part_names in parts} <= {len(names) // 8, len(names) // 8 + 1}
