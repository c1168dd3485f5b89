"""The site is the same by Jupyter Book's own command, and on one core."""

import shutil
import subprocess
import sys
from pathlib import Path

import inputs
import nbformat
import pytest
import website
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

OPTIONS = ["--warningiserror"]
FIGURE = """<svg xmlns="http://www.w3.org/2000/svg" width="9pt" height="9pt" viewBox="0 0 9 9">
<text>{}</text></svg>"""
TOC = {"format": "jb-book", "root": "book/index"}
CHAPTERS = [{"file": "notebooks/fig01_sum"}, {"file": "notebooks/gallery"}]


def glued(name: str, text: str) -> nbformat.NotebookNode:
    data = {"application/papermill.record/text/plain": repr(text)}
    metadata = {"scrapbook": {"name": name, "mime_prefix": "application/papermill.record/"}}
    return new_output("display_data", data, metadata=metadata)


def write_page(name: str, markdown: str, *outputs: nbformat.NotebookNode) -> None:
    cells = [new_markdown_cell(markdown), new_code_cell("1", outputs=[*outputs])]
    metadata = {"language_info": {"name": "python", "pygments_lexer": "ipython3"}}
    notebook = new_notebook(cells=cells, metadata=metadata)
    nbformat.write(notebook, website.NOTEBOOKS / f"{name}.ipynb")


def write_figure_page(title: str, number: str) -> None:
    picture = {"image/svg+xml": FIGURE.format(number), "text/csv": f"x\n{number}\n"}
    words = f"# Figure 1: {title}\n\nIt is {{glue:text}}`number`."
    write_page("fig01_sum", words, new_output("display_data", picture), glued("number", number))


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.fixture
def small_book(tmp_path, monkeypatch) -> Path:
    """A book of three pages with the book's extensions; the working folder is its _build."""
    for name in ("_ext", "_static"):
        shutil.copytree(inputs.ROOT / "book" / name, tmp_path / "book" / name)
    shutil.copy(inputs.ROOT / "book" / "references.bib", tmp_path / "book")
    (tmp_path / "book" / "mathjax").mkdir()
    config = yaml.safe_load((inputs.ROOT / "_config.yml").read_text(encoding="utf-8"))
    del config["sphinx"]["config"]["redirects"]
    (tmp_path / "_config.yml").write_text(yaml.dump(config))
    (tmp_path / "_toc.yml").write_text(yaml.dump({**TOC, "chapters": CHAPTERS}))
    index = "# A book\n\n{glue:text}`../notebooks/fig01_sum.ipynb::number:s`"
    (tmp_path / "book" / "index.md").write_text(index)
    build = tmp_path / "_build"
    (build / "book" / "notebooks").mkdir(parents=True)
    (build / "playground").mkdir()
    monkeypatch.chdir(build)
    outcome = glued("fig01_outcome", "It adds")
    write_page("gallery", "# Gallery\n\n```{gallery}\n```", outcome)
    write_figure_page("a sum", "0.25")
    return tmp_path


def test_after_a_failure_the_site_is_the_old_one(small_book, monkeypatch):
    website.HTML.mkdir()
    (website.HTML / "index.html").write_text("old")
    monkeypatch.setattr(website, "run_sphinx", lambda options: 1)
    assert website.build(OPTIONS, small_book) == 1
    assert (website.HTML / "index.html").read_text() == "old"


@pytest.mark.slow
@pytest.mark.site
def test_jupyter_book_s_own_command_builds_the_same_site(small_book):
    """In a checkout, from the stored outputs; then `make book` has to build the site again."""
    (small_book / "book" / "mathjax" / "tex.js").write_text("a script")
    assert website.build(OPTIONS, small_book) == 0
    shutil.copytree(website.NOTEBOOKS, small_book / "notebooks")
    shutil.copytree("playground", small_book / "playground" / "runs")
    (small_book / "README.md").write_text("# Not a page\n")
    stamp = Path("html.made")
    stamp.touch()
    site = website.HTML.rename("made by website.py")
    program = Path(sys.executable).with_name("jupyter-book")
    command = [program, "build", small_book, "-W", "--keep-going"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    built = contents(website.HTML)
    left_out = {name for name in built if name.endswith((".map", ".ttf"))}  # by website.py
    assert {name: built[name] for name in built.keys() - left_out} == contents(site)
    assert "mathjax/tex.js" in built
    assert not stamp.exists()
