"""Print how a folder of Python code reads, in figures that can be compared between codebases.

No test enforces the figures: they are a mirror, not a cap. `make mirror` prints them for this
repository. Arguments name other folders, and `--exclude` the folders in them to leave out:

    python workflow/mirror.py ../tracr ../equinox/equinox
    python workflow/mirror.py ../nanoGPT --exclude data config

For tracr at 9ce2b8c, equinox at 9336d82 and nanoGPT at 3adf61e1 these commands print (rates are
per 1,000 lines that are not blank):

             lines  mean % over 100 % over 110 comprehensions tuples % vague questions
    tracr     8369  40.6        0.0        0.0            7.9    2.5     1.1  1 of 243
    equinox  13024  41.9        0.2        0.1            6.8    0.2     0.2  0 of 250
    nanoGPT    829  49.2        4.2        1.7           25.3    7.2     0.0    0 of 9

`tuples` are assignments such as `a, b = x, y`. A vague name is one of `VAGUE`. `questions` are
docstrings that open with a question word.
"""

import argparse
import ast
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parent.parent
OUR_PACKAGES = ("carry_core", "carry_fast", "carry_train", "carry_paper")
OUR_FOLDERS = (*OUR_PACKAGES, "workflow", "tests", "notebooks")

# These words say nothing about what a name stands for; tests/book/test_names.py counts them too.
BANNED_WORDS = """
found each there every shown kept known told here its said at_hand roles forks edits longer
draws
"""
# A name out of this list tells the reader hardly more. No test counts these.
VAGUE_WORDS = """
about alike asked at chosen drawn given gone how left_out made many mine most much named of
one ones other others own seen several some stuff such taken that theirs them these they
thing things this those wanted what when where whether which who whose why
"""
BANNED = frozenset(BANNED_WORDS.split())
VAGUE = BANNED | frozenset(VAGUE_WORDS.split())
QUESTION_WORDS = frozenset(
    ["What", "How", "Whether", "Where", "Which", "Who", "When", "Why", "Of"],
)

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Figures:
    """Counts over some code."""

    line_lengths: list[int] = field(default_factory=list)  # of the lines that are not blank
    comprehensions: int = 0
    tuple_assignments: int = 0
    names: Counter[str] = field(default_factory=Counter)
    docstrings: int = 0
    questions: int = 0

    def add(self, code: str) -> None:
        """Count one module or cell."""
        self.line_lengths += [len(line) for line in code.splitlines() if line.strip()]
        tree = ast.parse(code)
        self.names.update(bound_names(tree))
        for node in ast.walk(tree):
            if isinstance(node, Comprehension):
                self.comprehensions += 1
            if isinstance(node, ast.Assign) and is_tuple_assignment(node):
                self.tuple_assignments += 1
            if isinstance(node, Documented) and (words := (ast.get_docstring(node) or "").split()):
                self.docstrings += 1
                self.questions += words[0] in QUESTION_WORDS

    def row(self) -> dict[str, str]:
        """Return the figures as they are printed; rates are per 1,000 lines that are not blank."""
        n_lines = len(self.line_lengths)
        n_vague = sum(count for name, count in self.names.items() if name in VAGUE)
        return {
            "lines": str(n_lines),
            "mean": f"{sum(self.line_lengths) / n_lines:.1f}",
            "% over 100": f"{100 * self.longer_than(100) / n_lines:.1f}",
            "% over 110": f"{100 * self.longer_than(110) / n_lines:.1f}",
            "comprehensions": f"{1000 * self.comprehensions / n_lines:.1f}",
            "tuples": f"{1000 * self.tuple_assignments / n_lines:.1f}",
            "% vague": f"{100 * n_vague / max(1, self.names.total()):.1f}",
            "questions": f"{self.questions} of {self.docstrings}",
        }

    def longer_than(self, columns: int) -> int:
        return sum(length > columns for length in self.line_lengths)


def bound_names(tree: ast.AST) -> Iterator[str]:
    """Yield each name that is assigned to, and each parameter, as often as it is bound."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def is_tuple_assignment(node: ast.Assign) -> bool:
    """Return True for `a, b = x, y`: several names get several values in one statement."""
    several_names = any(isinstance(target, ast.Tuple) for target in node.targets)
    return several_names and isinstance(node.value, ast.Tuple)


def code_of(path: Path) -> Iterator[str]:
    """Yield the code of a module, or of each code cell of a notebook."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield text
        return
    for cell in json.loads(text)["cells"]:
        if cell["cell_type"] == "code":
            yield "".join(cell["source"])


def code_files(folder: Path, excluded: frozenset[str] = frozenset()) -> list[Path]:
    """List the modules below a folder, or if the folder is called `notebooks` its notebooks.

    Args:
        folder: The folder to search.
        excluded: Names of folders whose files are left out.
    """
    pattern = "*.ipynb" if folder.name == "notebooks" else "*.py"
    paths = []
    for path in sorted(folder.rglob(pattern)):
        if excluded.isdisjoint(path.relative_to(folder).parts):
            paths.append(path)
    return paths


def main() -> None:
    """Print a row of figures for each folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--exclude", nargs="+", default=[], metavar="NAME")
    options = parser.parse_args()

    rows = {}
    for folder in options.folders or [ROOT / name for name in OUR_FOLDERS]:
        figures = Figures()
        for path in code_files(folder, frozenset(options.exclude)):
            for code in code_of(path):
                figures.add(code)
        if not figures.line_lengths:
            parser.error(f"{folder} has no Python code: expected a folder of modules.")
        rows[folder.name] = figures.row()
    print(pd.DataFrame(rows).T.to_string())


if __name__ == "__main__":
    main()
