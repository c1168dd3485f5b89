"""Build steps that `pyproject.toml` cannot name: the weights in the wheel, and its readme.

A wheel has the six runs of the paper's main group, so that `load("n2_s0.3_w0.2")` works without a
checkout. They are copied from `data/runs` while the wheel is built, and committed only there.
"""

import re
import shutil
import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
# The leading runs of the main group (`groups.MAIN`), and their place in the package.
RUNS = Path("data/runs/n2_s0.3_w0.2/paper")
LIST = Path("data/runs/leading.json")  # the recipe that leads, by group
PACKAGE = Path("carry_core")
LINK = re.compile(r"(!?)\[([^]]*)\]\((?!\w+:)([^)]*)\)")  # to a file of the repository


class BuildWithRuns(build_py):
    """Copy the runs beside the code. An editable installation reads those of the checkout."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for source, target in self.copies().items():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)

    def copies(self) -> dict[Path, Path]:
        """Return the files to copy, with their places in the wheel."""
        folder = Path(self.build_lib) / PACKAGE / RUNS
        copies = {path: folder / path.name for path in sorted((ROOT / RUNS).glob("run*"))}
        return {ROOT / LIST: Path(self.build_lib) / PACKAGE / LIST, **copies}

    def get_output_mapping(self) -> dict[str, str]:
        mapping = super().get_output_mapping()
        if not self.editable_mode:
            mapping |= {str(target): str(source) for source, target in self.copies().items()}
        return mapping


def readme() -> str:
    """Return the README for a page that has no files of the repository beside it.

    Its links lead to the repository's address, where `pyproject.toml` names one. Without an
    address, their words remain.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    address = project.get("urls", {}).get("Source")

    def elsewhere(link: re.Match[str]) -> str:
        is_picture, words, place = link.groups()
        if not address:
            return "" if is_picture else words
        kind = "raw" if is_picture else "blob"
        return f"{is_picture}[{words}]({address}/{kind}/main/{place})"

    return LINK.sub(elsewhere, (ROOT / "README.md").read_text(encoding="utf-8"))


setup(
    cmdclass={"build_py": BuildWithRuns},
    long_description=readme(),
    long_description_content_type="text/markdown",
)
