"""The data of figures and tables: exactly what they show, by name, and where it is written."""

import io

import IPython.display
import nbformat
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from nbformat.v4 import new_code_cell, new_notebook, new_output

from carry_core.carries import paper_name, patterns
from carry_paper.pages import data_files
from carry_paper.pages.show import show
from carry_paper.plots.attention import attention_grid
from carry_paper.plots.outcomes import cell_bars
from carry_paper.plots.sides import AUTHORS, OURS, subfigures
from carry_train import groups

LAYOUT = groups.GROUPS[groups.MAIN].config.layout


def read(csv: str) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(csv), dtype={"classes": str})


def test_arrays_of_one_shape_are_columns_with_the_number_in_each_axis():
    rng = np.random.default_rng(0)
    sides = {}
    for side in (AUTHORS, OURS):
        attention = rng.random((5, 2, 2, LAYOUT.length, LAYOUT.length))
        classes = np.array([paper_name(pattern) for pattern in patterns(3)])
        sides[side] = {"run": np.array(4), "attention": attention, "classes": classes}
        sides[side]["decision_head"] = np.array(1)
    figure = subfigures(sides, lambda part, side: attention_grid(part, side, LAYOUT), height=4.0)
    table = read(data_files.csv_of(figure))
    for side, arrays in sides.items():
        of_side = table[table.part == side]
        cells = of_side.dropna(subset="attention").set_index([f"axis {i}" for i in range(5)])
        assert cells.attention[3, 1, 0, 2, 7] == pytest.approx(
            arrays["attention"][3, 1, 0, 2, 7], rel=1e-5
        )
        np.testing.assert_allclose(cells.attention, arrays["attention"].ravel(), rtol=1e-5)
        assert list(of_side.classes.dropna()) == list(arrays["classes"])
        scalars = of_side.dropna(subset="run")
        assert scalars[["run", "decision_head"]].to_numpy().tolist() == [[4, 1]]


def test_frames_have_their_names():
    """Here the parts of bars; and the frame of a figure that has no data by itself."""
    rows = [(run, "head", "NC", "pos7", False, 0.5, 0.25) for run in (2, 7)]
    names = ["run", "ablation", "carry_class", "position", "carry_in", "accuracy", "corrected"]
    cells = pd.DataFrame(rows, columns=names)
    table = read(data_files.csv_of(cell_bars({AUTHORS: cells, OURS: cells.assign(accuracy=0.75)})))
    assert table.groupby("part", sort=False).accuracy.mean().to_dict() == {AUTHORS: 0.5, OURS: 0.75}
    assert table.run.tolist() == [2, 7, 2, 7]
    nested = {"group": {OURS: cells[["run"]]}}
    assert data_files.csv_of(Figure(), nested).startswith("part,part 2,run\ngroup,our weights,2\n")
    assert data_files.csv_of(Figure()) == ""
    taken = {OURS: pd.DataFrame({"part": ["final MLP"]})}
    assert data_files.csv_of(Figure(), taken) == f"part of the figure,part\n{OURS},final MLP\n"
    of_two_shapes = {"x": [np.array([0.5]), np.array([1, 2])]}
    csv = "axis 0,x 0,x 1\n0,0.5,\n0,,1\n1,,2\n"
    assert data_files.csv_of(Figure(), of_two_shapes) == csv
    assert data_files.csv_of(Figure(), {"x": [0.5, 1.5]}) == "axis 0,x\n0,0.5\n1,1.5\n"


def test_a_long_table_has_fewer_digits():
    numbers = pd.DataFrame({"x": np.full(data_files.MANY_ROWS + 1, 1 / 3)})
    assert data_files.csv_of(numbers).startswith("x\n0.3333\n")
    assert data_files.csv_of(numbers[:1]) == "x\n0.333333\n"


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


def test_data_come_with_outputs_where_they_are_asked_for(monkeypatch):
    """On the site, and in reruns; committed outputs have none."""
    outputs: list[dict[str, str]] = []
    monkeypatch.setattr(IPython.display, "display", lambda data, **_: outputs.append(data))
    for name in ("CARRY_FIGURES", "CARRY_CSV"):
        monkeypatch.delenv(name, raising=False)
    table = pd.DataFrame({"a": [1.5]})
    show(table)
    monkeypatch.setenv("CARRY_FIGURES", "svg")
    show(table)
    monkeypatch.delenv("CARRY_FIGURES")
    monkeypatch.setenv("CARRY_CSV", "all")
    show(table)
    assert [output.get("text/csv") for output in outputs] == [None, "a\n1.5\n", "a\n1.5\n"]


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
