"""Put together what a release consists of, in `_build/release`: `make release-dry`.

These are the sdist and the wheel, each group's weights as a folder for a model hub, the built site,
the release's section of the changelog, and the checksums of all of them. Nothing is published.
"""

import re
import shutil
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

import dist
import hub

from carry_core.errors import BadInput
from carry_core.files import ROOT
from carry_paper import catalogue
from carry_train import groups
from carry_train.files import sha256

OUT = ROOT / "_build" / "release"
SITES = ("_build/html", "_build/read/html")  # the first that exists
CHANGES = "CHANGES.md"


def version() -> str:
    """Return the version that `pyproject.toml` states."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def changes(changelog: str, number: str) -> str:
    """Return the changelog's section on a version, or on what is not released yet.

    Raises:
        BadInput: It has neither.
    """
    for title in (number, "Unreleased"):
        section = re.search(
            rf"^## \[{re.escape(title)}\].*?\n(.*?)(?=^## \[|\Z)",
            changelog,
            re.DOTALL | re.MULTILINE,
        )
        if section:
            return section[1].strip() + "\n"
    raise BadInput(f"CHANGELOG.md has no section on {number}: expected a heading ## [{number}].")


def check_tag(tag: str, number: str) -> None:
    """Raise `BadInput` unless a tag is the version's; there is none in a dry run."""
    if tag and tag != f"v{number}":
        raise BadInput(f"The tag {tag} is not that of version {number}: expected v{number}.")


def built_site() -> Path:
    """Return the folder of the built site; raise `BadInput` if there is none."""
    for name in SITES:
        if (ROOT / name / "index.html").is_file():
            return ROOT / name
    raise BadInput("The site has not been built: run `make book`, or `make read`.")


def pack(folder: Path, name: str, out: Path) -> None:
    """Write a folder as `<name>.tar.gz`, in which it is called `name`."""
    with tarfile.open(out / f"{name}.tar.gz", "w:gz") as archive:
        archive.add(folder, arcname=name)


def write(tag: str = "", out: Path = OUT) -> list[str]:
    """Write all files of a release anew, and return their names.

    Raises:
        BadInput: The tag is not the version's, or a part is missing.
    """
    number = version()
    check_tag(tag, number)
    site = built_site()
    notes = changes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), number)
    shutil.rmtree(out, ignore_errors=True)
    dist.build(out)
    (out / CHANGES).write_text(notes, encoding="utf-8")
    pack(site, f"site-{number}", out)
    with tempfile.TemporaryDirectory() as temporary:
        for group in groups.GROUPS:
            if catalogue.find(group):
                pack(hub.write(group, Path(temporary)), f"weights-{group}", out)
    names = sorted(path.name for path in out.iterdir())
    sums = "".join(f"{sha256(out / name)}  {name}\n" for name in names)
    (out / "SHA256SUMS").write_text(sums, encoding="utf-8")
    return [*names, "SHA256SUMS"]


def main(words: Sequence[str]) -> int:
    """Write the release of a tag, or that of the current version; return 2 for bad input."""
    try:
        names = write(words[0] if words else "")
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2
    for name in names:
        print(f"{(OUT / name).stat().st_size:>12,}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
