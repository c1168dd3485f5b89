"""The repository's address: written into every file that names it, or into none."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import address
import nbformat
import pytest
import yaml

from carry_core.files import ROOT

URL = "https://github.com/someone/carry-core"
FILES = [place.file for place in address.PLACES]
NOTEBOOKS = ("fig03_attention_per_task", "start_here")


@pytest.fixture
def checkout(tmp_path) -> Path:
    """The files that `make address` changes, without an address, and a few notebooks."""
    for name in [*FILES, *(f"notebooks/{stem}.ipynb" for stem in NOTEBOOKS)]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    address.write(None, tmp_path)
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_an_address_is_written_once_replaced_and_taken_out(checkout):
    without = contents(checkout)
    assert not any(b"someone" in content for content in without.values())
    assert sorted(address.write(URL, checkout)) == sorted(without)
    written = contents(checkout)
    assert all(b"someone/carry-core" in content for content in written.values())
    assert address.write(URL, checkout) == []
    address.write("https://github.com/other/Name.2", checkout)
    assert not any(b"someone" in content for content in contents(checkout).values())
    address.write(URL, checkout)
    assert contents(checkout) == written
    address.write(None, checkout)
    assert contents(checkout) == without


def test_the_files_are_still_what_their_readers_expect(checkout):
    address.write(URL, checkout)
    config = yaml.safe_load((checkout / "_config.yml").read_text())["sphinx"]["config"]
    options = config["html_theme_options"]
    assert options["repository_url"] == URL
    assert options["launch_buttons"].keys() == {"notebook_interface", "binderhub_url", "colab_url"}
    assert options["use_edit_page_button"] is options["use_issues_button"] is True
    assert yaml.safe_load((checkout / "CITATION.cff").read_text())["repository-code"] == URL
    project = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]
    assert project["urls"]["Source"] == URL
    assert project["scripts"], "the next table is still there"


@pytest.mark.slow
def test_the_notebooks_are_still_in_order_and_nothing_is_fetched_where_they_work(checkout):
    address.write(URL, checkout)
    for path in (checkout / "notebooks").glob("*.ipynb"):
        notebook = nbformat.read(path, 4)
        nbformat.validate(notebook)
        setup = [cell for cell in notebook.cells if cell.cell_type == "code"][1].source
        cell, last, _ = setup.partition('sys.path.append("carry")\n')
        assert URL in cell
        exec(cell + last, {})  # git would fail here: there is no such place
    command = [sys.executable, "-m", "ruff", "check", "--config", ROOT / "pyproject.toml"]
    subprocess.run([*command, checkout / "notebooks"], check=True)
