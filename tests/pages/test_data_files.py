"""The data of figures and tables: exactly what they show, by name, and where it is written."""

import io

import nbformat
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from nbformat.v4 import new_code_cell, new_notebook, new_output

from carry_core.carries import paper_name, patterns
from carry_paper.pages import data_files
from carry_paper.plots import drawn
from carry_paper.plots.attention import attention_grid
from carry_paper.plots.outcomes import cell_bars
from carry_paper.plots.planes import plane_figure
from carry_paper.plots.sides import AUTHORS, OURS, subfigures
from carry_paper.plots.style import CLASS_COLOURS, position_label
from carry_train import groups

LAYOUT = groups.GROUPS[groups.MAIN].config.layout


def read(csv: str) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(csv), dtype={"panel": str, "series": str})


def test_a_map_has_its_cells_by_side_panel_and_place():
    """Every cell of every map, whose panels are named at the edges of the grid alone."""
    rng = np.random.default_rng(0)
    classes = [paper_name(pattern) for pattern in patterns(3)]
    sides = {}
    for side in (AUTHORS, OURS):
        attention = rng.random((len(classes), 2, 2, LAYOUT.length, LAYOUT.length))
        sides[side] = {
            "run": np.array(4),
            "attention": attention,
            "classes": np.array(classes),
            "decision_head": np.array(1),
        }
    answer = dict(zip(LAYOUT.answer, LAYOUT.position_names, strict=True))
    figure = subfigures(
        sides, lambda part, side: attention_grid(part, side, LAYOUT, answer), height=4.0
    )
    table = read(data_files.csv_of(figure))
    assert list(table.columns) == list(drawn.Item._fields)
    assert set(table.kind) == {"cell"}

    for side, arrays in sides.items():
        of_side = table[table.side == f"{side}, run 4"]
        for i, carry_class in enumerate(classes):
            for row, head in enumerate(["0:0", "0:1", "1:0", "1:1 ★"]):
                cells = of_side[(of_side.left == head) & (of_side.panel == carry_class)]
                expected = arrays["attention"][i, row // 2, row % 2]
                if row >= 2:
                    expected = expected[list(LAYOUT.answer)]
                np.testing.assert_allclose(cells.value, expected.flatten(), rtol=1e-5)
                assert list(cells.x.astype(float)[: LAYOUT.length]) == [*range(LAYOUT.length)]
                rows = cells.y.iloc[:: LAYOUT.length]
                expected_rows = [*answer.values()] if row >= 2 else range(LAYOUT.length)
                assert list(rows.astype(str)) == [str(row) for row in expected_rows]


def test_bars_have_runs_and_names_and_the_paper_has_its_line():
    rng = np.random.default_rng(1)
    rows = []
    for run in (2, 7):
        for carry_class in ("NC", "C@1"):
            for position in ("pos7", "pos8"):
                right, off = rng.dirichlet([1, 1, 1])[:2]
                rows.append((run, "head", carry_class, position, True, right, off))
    names = ["run", "ablation", "carry_class", "position", "carry_in", "accuracy", "corrected"]
    cells = pd.DataFrame(rows, columns=names)
    others = cells.assign(accuracy=cells.accuracy / 2)
    sides = {AUTHORS: others, OURS: cells, "paper": cells[cells.run == 2]}
    table = read(data_files.csv_of(cell_bars(sides)))
    assert len(table[(table.kind == "bar") & (table.side == AUTHORS)]) == 3 * len(cells)
    bars = table[(table.kind == "bar") & (table.side == OURS)]
    for _, cell in cells.iterrows():
        panel = bars[
            (bars.panel == f"head {position_label(cell.position)}")
            & (bars.left == cell.carry_class)
        ]
        of_run = panel[panel.x.astype(float) == cell.run].set_index("series").value
        assert of_run["accuracy"] == pytest.approx(cell.accuracy, rel=1e-5)
        assert of_run["corrected"] == pytest.approx(cell.corrected, rel=1e-5)
    lines = table[table.kind == "across"]
    assert set(lines.series) == {"correct, in the paper"}
    np.testing.assert_allclose(sorted(lines.y), sorted(cells[cells.run == 2].accuracy), rtol=1e-5)


def test_points_are_named_by_the_legend_and_lines_by_their_labels():
    rng = np.random.default_rng(2)
    planes = {
        "layer": np.array([0]),
        "after": np.array(["MLP"]),
        "position": np.array([7]),
        "share": np.array([[0.6, 0.2]]),
        "digit": rng.integers(0, 10, (1, 200)),
        "x": rng.random((1, 200)),
        "y": rng.random((1, 200)),
    }
    table = drawn.table(plane_figure({OURS: planes}, height=2.0))
    points = table[table.kind == "points"]
    digits = planes["digit"][0].astype(str)
    expected = sorted(zip(planes["x"][0], planes["y"][0], digits, strict=True))
    assert sorted(zip(points.x, points.y, points.series, strict=True)) == expected

    figure = Figure()
    ax = figure.subplots()
    ax.plot([1, 2], [3.0, np.nan], label="train")
    ax.plot([1, 2], [5.0, 6.0], color=CLASS_COLOURS[1])
    ax.barh(["one", "two"], [0.25, 0.5])
    ax.hlines([1.0], [0.0], [2.0])
    ax.text(1, 2, "a word")
    table = drawn.table(figure)
    assert table.number.max() == 5
    line = table[table.number == 1]
    assert list(line.series) == ["train", "train"]
    assert "train,1,3," in data_files.csv_of(figure)
    bars = table[table.kind == "bar"]
    assert list(bars.y) == ["one", "two"]
    assert list(bars.value) == [0.25, 0.5]
    assert list(table[table.kind == "span"].x) == [0.0, 2.0]
    assert list(table[table.kind == "text"].series) == ["a word"]


def test_a_table_is_tidy():
    plain = pd.DataFrame(
        {"cost": [1 / 3, np.nan], "kind": ["x", None]}, pd.Index([4, 5], name="run")
    )
    assert data_files.csv_of(plain) == "run,cost,kind\n4,0.333333,x\n5,,\n"
    assert data_files.csv_of(plain.style.format(precision=1)) == data_files.csv_of(plain)
    crossed = plain.rename_axis(columns="measure")
    assert data_files.csv_of(crossed) == (
        "run,measure,value\n4,cost,0.333333\n4,kind,x\n5,cost,\n5,kind,\n"
    )
    levels = pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("a", "b"), ("c", "d")]))
    assert data_files.csv_of(levels) == "row,column,column 2,value\n0,a,b,1\n0,c,d,2\n"
    assert data_files.csv_of(plain[:0]) == ""


def test_files_stand_beside_a_notebook_with_links_to_them(tmp_path):
    named = {"scrapbook": {"name": "figure"}}
    long = "a\n" + "0.5\n" * data_files.LARGEST_PLAIN
    cell = new_code_cell(
        outputs=[
            new_output("display_data", {"image/png": "", "text/csv": long}, metadata=named),
            new_output("display_data", {"text/html": "", "text/csv": "a\n1\n"}),
            new_output("display_data", {"text/html": "", "text/csv": "a\n1\n"}),
            new_output("display_data", {"text/html": "no data"}),
        ]
    )
    notebook = new_notebook(cells=[cell])
    files = data_files.write_beside(notebook, tmp_path / "fig03.ipynb")
    nbformat.validate(notebook)
    assert [file.name for file in files] == ["figure.csv.gz", "table1.csv", "table2.csv"]
    assert len(pd.read_csv(files[0])) == data_files.LARGEST_PLAIN
    links = [output.data.get("text/html", "") for output in cell.outputs]
    assert 'href="fig03/figure.csv.gz"' in links[1]
    assert 'href="fig03/table1.csv"' in links[3]
    assert 'href="fig03/table2.csv"' in links[5]
    assert links[6] == "no data"
    assert list(data_files.data_files(notebook)) == []
