"""Contents decide which pages are stale, and the comparison of executed notebooks sees numbers."""

import os
import subprocess
import sys
from pathlib import Path

import executed
import inputs
import nbformat
import part
import pytest
from jupyter_client.manager import start_new_kernel

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


def test_the_longest_pages_are_pages_and_start_before_all_others():
    names = [path.stem for path in (ROOT / "notebooks").glob("*.ipynb")]
    in_order = sorted(names, key=inputs.priority, reverse=True)
    assert tuple(in_order[: len(inputs.LONGEST)]) == inputs.LONGEST
    assert {inputs.priority(name) for name in in_order[len(inputs.LONGEST) :]} == {0}


def test_the_parts_of_the_book_are_all_of_it_and_a_commit_has_one():
    names = [
        path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "notebooks").glob("*.ipynb"))
    ]
    parts = [part.notebooks(k, 8) for k in range(1, 9)]
    assert sorted(name for part_names in parts for name in part_names) == names
    assert {len(part_names) for part_names in parts} <= {len(names) // 8, len(names) // 8 + 1}
    assert part.of_commit() == part.of_commit()
    assert 1 <= part.of_commit()[0] <= part.PARTS == part.of_commit()[1]


def test_without_git_the_day_has_a_part(monkeypatch):
    monkeypatch.setenv("PATH", "")
    part_number, parts = part.of_commit()
    assert 1 <= part_number <= part.PARTS == parts


@pytest.mark.parametrize("text", ["", "0/8", "9/8", "2", "2/8/3", "-1/8", "two/8"])
def test_a_part_that_is_none_is_refused_in_one_line(text):
    with pytest.raises(SystemExit, match=f"PART={text}: expected commit, or a number and how many"):
        part.parse(text)
    assert part.parse("2/8") == (2, 8)


def notebook_in_one_kernel() -> nbformat.NotebookNode:
    """A notebook whose cells need those above them, and print how many threads they have."""
    threads = "import os, matplotlib.pyplot\nthreads = os.environ['OMP_NUM_THREADS']"
    cells = [nbformat.v4.new_code_cell(threads)]
    for _ in range(3):
        output = nbformat.v4.new_output("execute_result", {"text/plain": "'1'"}, execution_count=2)
        cell = nbformat.v4.new_code_cell("threads", outputs=[output], execution_count=2)
        cells.append(cell)
    return nbformat.v4.new_notebook(cells=cells)


@pytest.mark.slow
def test_notebooks_are_compared_side_by_side_where_neither_checkout_nor_home_can_be_written(
    tmp_path,
):
    """`pytest -n 2 --nbval`, with every cache in a place where nothing can be."""
    for name in ("one", "two"):
        nbformat.write(notebook_in_one_kernel(), tmp_path / f"{name}.ipynb")
    (tmp_path / "conftest.py").write_text((ROOT / "notebooks" / "conftest.py").read_text())
    nowhere = "/dev/null/folder"
    environment = os.environ | dict.fromkeys(("HOME", "IPYTHONDIR", "MPLCONFIGDIR"), nowhere)
    environment.pop("OMP_NUM_THREADS", None)
    command = [sys.executable, "-m", "pytest", "--nbval", "-c", ROOT / "pyproject.toml", "-n", "2"]
    command += ["--rootdir", tmp_path, "-o", f"cache_dir={nowhere}", tmp_path]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "8 passed" in ran.stdout


REGISTERS_EXIT = """
import atexit, pathlib, tempfile
from ipykernel.kernelapp import IPKernelApp

IPKernelApp.instance().iopub_thread.thread.join = lambda *_, **__: pathlib.Path("waited").touch()
atexit.register(pathlib.Path("registered").touch)
pathlib.written = open("written", "w")
pathlib.written.write("not yet flushed")
folder = tempfile.TemporaryDirectory(dir=".", prefix="temporary")
"""


@pytest.mark.slow
def test_a_kernel_ends_by_itself_and_loses_nothing_that_its_cells_began(tmp_path):
    config = ROOT / "workflow" / "ipython_kernel_config.py"
    (tmp_path / "profile_default").mkdir()
    (tmp_path / "profile_default" / config.name).write_text(config.read_text())
    environment = os.environ | {"IPYTHONDIR": str(tmp_path)}
    manager, client = start_new_kernel(cwd=str(tmp_path), env=environment)
    try:
        reply = client.execute(REGISTERS_EXIT, reply=True, timeout=60)
        assert reply["content"]["status"] == "ok", reply["content"]
        assert list(tmp_path.glob("temporary*"))
        manager.request_shutdown()
        assert manager.provisioner.process.wait(60) == 0
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert (tmp_path / "registered").exists()
    assert (tmp_path / "written").read_text() == "not yet flushed"
    assert not list(tmp_path.glob("temporary*"))
    assert not (tmp_path / "waited").exists()


@pytest.mark.slow
@pytest.mark.needs("a .venv that make set up")
def test_after_a_kill_make_says_how_to_go_on_and_unlock_does_it(tmp_path, no_cluster):
    """The folder has links to this checkout and a `_build` of its own, locked as by a kill.

    Nothing can be written to the home folder.
    """
    for path in ROOT.iterdir():
        if path.name != "_build":
            (tmp_path / path.name).symlink_to(path)
    environment = os.environ | {"HOME": "/dev/null/home"}
    for name in ("MAKEFLAGS", "XDG_CACHE_HOME"):
        environment.pop(name, None)

    def make(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = ["make", "--directory", tmp_path, *arguments]
        options = {"capture_output": True, "text": True, "check": False}
        return subprocess.run(command, env=environment, **options)

    locks = tmp_path / "_build" / ".snakemake" / "locks"
    locks.mkdir(parents=True)
    (locks / "0.output.lock").write_text("executed/claims\n")
    refused = make("notebooks")
    assert refused.returncode == 2
    assert "run `make unlock`" in refused.stderr
    assert "LockException" not in refused.stderr + refused.stdout
    assert make("unlock").returncode == 0
    assert list(locks.glob("*")) == []
