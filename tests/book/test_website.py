"""Sphinx reads pages again by contents: those that changed, or all if anything else did."""

import os
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
REPOSITORY = (
    "_config.yml",
    "_toc.yml",
    "book/index.md",
    "book/mathjax/tex.js",
    "playground/model.js",
    "carry_core/model.py",
    "data/claims.yml",
)


class Sphinx:
    """A stand-in for Sphinx, which reads the pages that it has not kept and writes all."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.status = 0

    def run(self, options: list[str]) -> int:
        self.read = []
        html = website.CACHE / "html"
        (html / "_static").mkdir(parents=True)
        (html / "_static" / "theme.css.map").touch()
        for path in sorted(website.NOTEBOOKS.glob("*.ipynb")):
            doctree = website.CACHE / ".doctrees" / "notebooks" / f"{path.stem}.doctree"
            if not doctree.exists():
                self.read.append(path.stem)
                doctree.parent.mkdir(parents=True, exist_ok=True)
                doctree.touch()
            (html / f"{path.stem}.html").write_text(path.read_text())
        return self.status


@pytest.fixture
def sphinx(tmp_path, monkeypatch) -> Sphinx:
    """Build a site of two notebooks in a folder of its own, with Sphinx's stand-in."""
    for name in REPOSITORY:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("old")
    build = tmp_path / "_build"
    (build / "book" / "notebooks").mkdir(parents=True)
    (build / "playground").mkdir()
    for name in ("book/notebooks/fig.ipynb", "book/notebooks/tab.ipynb", "playground/run.json"):
        (build / name).write_text("old")
    stand_in = Sphinx()
    monkeypatch.chdir(build)
    monkeypatch.setattr(website, "run_sphinx", stand_in.run)
    assert rebuilt() == 0
    assert stand_in.read == ["fig", "tab"]
    return stand_in


def rebuilt(options: list[str] = OPTIONS) -> int:
    inputs.shared.cache_clear()
    return website.build(options, Path.cwd().parent)


def test_a_changed_notebook_alone_is_read_again_with_an_older_clock_too(sphinx):
    fig = website.NOTEBOOKS / "fig.ipynb"
    fig.write_text("new")
    os.utime(fig, (1, 1))
    assert rebuilt() == 0
    assert sphinx.read == ["fig"]
    assert Path("html/fig.html").read_text() == "new"
    assert not list(Path("html").rglob("*.map"))
    assert rebuilt() == 0
    assert sphinx.read == []


@pytest.mark.parametrize(
    "name", ["../carry_core/model.py", "../data/claims.yml", "book/notebooks/a.ipynb"]
)
def test_any_other_change_and_a_new_notebook_has_all_pages_read(sphinx, name):
    Path(name).write_text("new")
    assert rebuilt() == 0
    assert sphinx.read[-2:] == ["fig", "tab"]


def test_after_a_failure_the_site_is_the_old_one_and_all_pages_are_read(sphinx):
    (website.NOTEBOOKS / "fig.ipynb").write_text("new")
    sphinx.status = 1
    assert rebuilt() == 1
    assert Path("html/fig.html").read_text() == "old"
    sphinx.status = 0
    assert rebuilt() == 0
    assert sphinx.read == ["fig", "tab"]
    assert Path("html/fig.html").read_text() == "new"


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


@pytest.mark.slow
@pytest.mark.site
def test_a_site_from_what_changed_is_the_site_from_all_sources(small_book):
    """Other pages show the title and the number that changed."""
    options = [*OPTIONS, "--keep-going"]
    assert website.build(options, small_book) == 0
    before = contents(website.HTML)
    write_figure_page("another sum", "0.75")
    assert website.changed_notebooks(website.sources(options, small_book)) == ["fig01_sum"]
    assert website.build(options, small_book) == 0
    from_what_changed = contents(website.HTML)
    website.RECORD.unlink()
    assert website.build(options, small_book) == 0
    assert contents(website.HTML) == from_what_changed
    for page in ("book/index.html", "notebooks/gallery.html", "notebooks/fig01_sum.html"):
        assert before[page] != from_what_changed[page]
    assert b"0.75" in from_what_changed["book/index.html"]
    assert b"another sum" in from_what_changed["notebooks/gallery.html"]


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
