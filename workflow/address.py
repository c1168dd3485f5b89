"""Write the repository's address into the files that name it, or take it out again.

`make address URL=https://github.com/OWNER/NAME` writes it, `make address URL=none` takes it out.
The files without an address are those of a repository that is nowhere yet: no page has a button
that leads to it.
"""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from carry_core.files import ROOT
from carry_train.files import replacing_all

URL = re.compile(r"https://github\.com/[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+")
HOST = re.compile(r"https://([\w.-]+)/")
EXPECTED = "expected an address such as https://github.com/OWNER/NAME, or none to take it out"
NOT_GITHUB = (
    "is not on GitHub, and the buttons for Colab, Binder, editing and issues lead to GitHub alone"
)


class Place(NamedTuple):
    """Lines with the address in a file: what they follow there, and their text."""

    file: str
    after: str
    text: str


BUTTONS = """\
      repository_url: {url}
      repository_branch: main
      path_to_docs: ""
      use_repository_button: true
      use_edit_page_button: true
      use_issues_button: true
      launch_buttons:
        notebook_interface: jupyterlab
        binderhub_url: https://mybinder.org
        colab_url: https://colab.research.google.com
"""
URLS = """\
[project.urls]
Source = "{url}"
Issues = "{url}/issues"
Changelog = "{url}/blob/main/CHANGELOG.md"

"""
LAUNCH = (
    "Without installing anything: [in Colab](https://colab.research.google.com/github/{name}/blob/"
    "main/notebooks/start_here.ipynb) or [in Binder](https://mybinder.org/v2/gh/{name}/main?"
    "urlpath=lab/tree/notebooks/start_here.ipynb).\n"
)
PLACES = (
    Place("_config.yml", "      use_source_button: false\n", BUTTONS),
    Place("CITATION.cff", "license: MIT\n", 'repository-code: "{url}"\n'),
    Place("pyproject.toml", "# make address writes here.\n", URLS),
    Place("README.md", "<!-- make address -->\n", LAUNCH),
    Place("book/reading.md", "<!-- make address -->\n", LAUNCH),
)
# A page's second cell of code, folded in the book, gets the project where Colab opens the page.
CHECKOUT = """\
import importlib.util
import subprocess
import sys

if importlib.util.find_spec("carry_paper") is None:  # as in Colab
    url = "{url}"
    subprocess.run(["git", "clone", "--depth", "1", url, "carry"], check=True)
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--editable", "carry[paper]"]
    subprocess.run(install, check=True)
    sys.path.append("carry")

"""


def pattern(text: str) -> re.Pattern[str]:
    """Return a pattern of these lines with any address."""
    parts = re.split(r"\{url\}|\{name\}", text)
    return re.compile(r"[\w.:/-]+?".join(map(re.escape, parts)))


def filled(text: str, url: str | None) -> str:
    """Return lines with the address in them; without one there are none."""
    if url is None:
        return ""
    return text.replace("{url}", url).replace("{name}", url.removeprefix("https://github.com/"))


def changed_file(place: Place, root: Path, url: str | None) -> str:
    """Return a file's text with its lines for this address."""
    text = (root / place.file).read_text(encoding="utf-8")
    before, mark, after = text.partition(place.after)
    if not mark:
        sys.exit(f"{place.file} has no line {place.after.strip()!r}, after which the address goes.")
    stale = pattern(place.text).match(after)
    return before + mark + filled(place.text, url) + after[stale.end() if stale else 0 :]


def changed_notebook(path: Path, url: str | None) -> str:
    """Return a notebook's text, whose set-up cell gets the project from this address."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    setup = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"][1]
    source = "".join(setup["source"])
    stale = pattern(CHECKOUT).match(source)
    source = filled(CHECKOUT, url) + source[stale.end() if stale else 0 :]
    setup["source"] = source.splitlines(keepends=True)
    return json.dumps(notebook, ensure_ascii=False, indent=1) + "\n"


def write(url: str | None, root: Path = ROOT) -> list[str]:
    """Write the address, or take it out for None; return the names of the files that changed."""
    texts = {root / place.file: changed_file(place, root, url) for place in PLACES}
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        texts[path] = changed_notebook(path, url)
    stale = [path for path, text in texts.items() if path.read_text(encoding="utf-8") != text]
    with replacing_all(*stale) as temporaries:
        for path, temporary in zip(stale, temporaries, strict=True):
            temporary.write_text(texts[path], encoding="utf-8")
    return [path.relative_to(root).as_posix() for path in stale]


def refusal(url: str) -> str:
    """Return why an address is refused."""
    elsewhere = HOST.match(url)
    if elsewhere and elsewhere[1] != "github.com":
        return f"{elsewhere[1]} {NOT_GITHUB}; {EXPECTED}"
    return EXPECTED


def main(words: Sequence[str]) -> int:
    """Write the address that is given; return 2 if it is none."""
    given = words[0] if words else ""
    url = given.removesuffix("/").removesuffix(".git")
    if given != "none" and not URL.fullmatch(url):
        print(f"URL={given}: {refusal(url)}.", file=sys.stderr)
        return 2
    changed = write(None if given == "none" else url)
    print("\n".join(changed) or "Nothing changed.")
    if changed:
        print("Now run `make book` and `make outputs`: the code of the notebooks has changed.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
