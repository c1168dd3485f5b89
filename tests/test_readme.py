"""What the README says can be done can be done."""

import re
import runpy

import nbformat
import pytest

from carry_core.files import ROOT

README = (ROOT / "README.md").read_text()


def test_the_example_runs(capsys):
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(example, "README.md", "exec"), {})
    assert capsys.readouterr().out.startswith("tensor([3, 1, 3])")  # 158 + 265 = 423, with no one carried


def test_the_picture_is_the_one_of_table_1():
    outputs = runpy.run_path(str(ROOT / "workflow" / "outputs.py"))
    notebook = nbformat.read(ROOT / "notebooks" / "tab01_decision_head_and_final_mlp.ipynb", 4)
    picture = re.search(r"\]\((book/[\w.]+)\)", README)[1]
    assert (ROOT / picture).read_text() == outputs["figure"](notebook, "fig-summary"), "run make outputs"


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([\w/]+/)`|\]\((\w+\.\w+)\)", README))))
def test_what_it_names_exists(name):
    assert (ROOT / "".join(name)).exists()


def test_it_names_the_weights_that_are_shipped():
    shipped = {path.stem for path in (ROOT / "data" / "runs").glob("*.safetensors")}
    (sentence,) = re.findall(r"Shipped now are(.*?)\.\n", README + "\n", re.DOTALL)
    assert set(re.findall(r"`(n\d\w*[\w.]+|decoder_[\w.]+|pad\d+_[\w.]+|digits4_[\w.]+)`", sentence)) == shipped
