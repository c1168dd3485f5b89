"""What the README says can be done can be done."""

import re
import runpy

import nbformat
import pytest

import carry_core
from carry_core.files import ROOT
from carry_core.model import POINTS, ModelConfig

README = (ROOT / "README.md").read_text()


def test_the_examples_run(capsys):
    for example in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        exec(compile(example, "README.md", "exec"), {})
    assert capsys.readouterr().out.startswith("tensor([3, 1, 3])")  # 158 + 265 = 423, with no one carried


def test_the_front_door_is_what_the_page_says():
    page = (ROOT / "book" / "api.md").read_text()
    assert set(re.findall(r"^\| `(\w+)", page.partition("## Hook points")[0], re.MULTILINE)) == set(carry_core.HOMES)
    assert all(callable(getattr(carry_core, name)) for name in carry_core.HOMES)
    points = re.findall(r"^\| `blocks\.\{l\}\.([\w.]+)` \| `([\w.{}]+)`", page, re.MULTILINE)
    assert [own for own, _ in points] == list(POINTS)
    config = ModelConfig()
    for own, theirs in points:
        assert config.hook_name(theirs.replace("{l}", "1")) == f"blocks.1.{own}"


def test_the_picture_is_the_one_of_table_1():
    outputs = runpy.run_path(str(ROOT / "workflow" / "outputs.py"))
    notebook = nbformat.read(ROOT / "notebooks" / "tab01_decision_head_and_final_mlp.ipynb", 4)
    picture = re.search(r"\]\((book/[\w.]+)\)", README)[1]
    assert (ROOT / picture).read_bytes() == outputs["figure"](notebook, "figure"), "run make outputs"


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([\w/]+/)`|\]\((\w+\.\w+)\)", README))))
def test_what_it_names_exists(name):
    assert (ROOT / "".join(name)).exists()


def test_it_names_the_weights_that_are_shipped():
    shipped = {path.name for path in (ROOT / "data" / "runs").iterdir() if path.is_dir()}
    (sentence,) = re.findall(r"Shipped now are(.*?)\.\n", README + "\n", re.DOTALL)
    assert set(re.findall(r"`(n\d\w*[\w.]+|decoder_[\w.]+|pad\d+_[\w.]+|digits4_[\w.]+)`", sentence)) == shipped


def test_the_card_of_the_weights_adds(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    if not list((ROOT / "data" / "runs").glob("*/paper/run0.safetensors")):
        pytest.skip("the weights are not one file a run yet")
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "data" / "runs" / "README.md").read_text(), re.DOTALL)
    exec(compile(code, "data/runs/README.md", "exec"), {})
    assert capsys.readouterr().out == "[4, 2, 3]\n"
