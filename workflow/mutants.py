"""Check that a test notices each of the small wrong changes that mutants.toml lists.

The changes are made one at a time, in a copy of this repository. A mutant replaces a piece of code
by another. The piece is compared as Python parses it, so line breaks, quotes and commas don't
matter. It has to occur exactly once in the function that `where` names ("" for the whole file);
otherwise the list is out of date, and nothing is run. `tests` should notice the mutant. A mutant
with a reason in `equivalent` changes nothing that can be observed, so its tests should pass.

Words on the command line, such as `measure.py decision_head`, choose the mutants that have one of
them in their title.
"""

import ast
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
LIST = Path(__file__).with_suffix(".toml")
BUILT = (".*", "_build", "__pycache__", "*.egg-info")
IMPORTED = ("author", "checkpoints")  # in data/
# In seconds of CPU time. A mutant that makes its tests run on and on has been noticed.
TIME_LIMIT = 600


class Stale(Exception):
    """The list names code that does not exist."""


@dataclass(frozen=True)
class Mutant:
    """A wrong change to one function, and the tests that should notice it.

    Attributes:
        file: A file in a package, such as `measure.py`, with its folder where the name is not
            unique.
        where: The function or method, or "" for the whole file.
        before: The code to replace.
        after: The code that replaces it.
        tests: The tests that should fail, as pytest takes them.
        why: What would be wrong.
        equivalent: The reason why no test can notice it, if none can.
    """

    file: str
    where: str
    before: str
    after: str
    tests: tuple[str, ...]
    why: str
    equivalent: str = ""

    @property
    def title(self) -> str:
        place = " ".join(filter(None, (self.file, self.where)))
        return f"{place}: {self.before}  ->  {self.after}"


def listed(path: Path = LIST) -> list[Mutant]:
    """Return the mutants of the list."""
    mutants = []
    for table in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]:
        mutants.append(Mutant(**{**table, "tests": tuple(table["tests"])}))
    return mutants


def source_of(mutant: Mutant, root: Path) -> Path:
    """Return the file that a mutant changes; raise `Stale` unless one file has that name."""
    name = Path(mutant.file).name
    paths = [path for path in root.glob(f"carry_*/**/{name}") if path.match(mutant.file)]
    if len(paths) != 1:
        raise Stale(f"{mutant.title}: {len(paths)} files are called {mutant.file}, expected one")
    return paths[0]


def scope(tree: ast.Module, where: str) -> ast.AST:
    """Return the function, class or `Class.method` of this name; raise `Stale` without one."""
    node: ast.AST = tree
    for name in filter(None, where.split(".")):
        definitions = [child for child in ast.walk(node) if getattr(child, "name", None) == name]
        if not definitions:
            raise Stale(f"there is no {where}")
        node = definitions[0]
    return node


def parsed(text: str) -> ast.AST:
    """Return the tree of an expression or a statement."""
    (statement,) = ast.parse(text).body
    return statement.value if isinstance(statement, ast.Expr) else statement


@cache
def tree_of(source: str) -> ast.Module:
    """Return the tree of a source."""
    return ast.parse(source)


def place(source: str, mutant: Mutant) -> Any:
    """Return the node that a mutant replaces; raise `Stale` unless it occurs exactly once."""
    before = parsed(mutant.before)
    text = ast.dump(before)
    try:
        nodes = ast.walk(scope(tree_of(source), mutant.where))
    except Stale as error:
        raise Stale(f"{mutant.title}: {error}") from error
    places = [node for node in nodes if type(node) is type(before) and ast.dump(node) == text]
    if len(places) != 1:
        raise Stale(f"{mutant.title}: it is there {len(places)} times, expected once")
    return places[0]


def mutated(source: str, mutant: Mutant) -> str:
    """Return the source with the change; raise `Stale` as `place`."""
    node = place(source, mutant)
    after = f"({mutant.after})"
    if isinstance(node, ast.stmt):
        after = textwrap.indent(mutant.after, " " * node.col_offset).lstrip()
    lines = source.encode().splitlines(keepends=True)  # columns are counted in bytes
    before_it = [*lines[: node.lineno - 1], lines[node.lineno - 1][: node.col_offset]]
    after_it = [lines[node.end_lineno - 1][node.end_col_offset :], *lines[node.end_lineno :]]
    return b"".join([*before_it, after.encode(), *after_it]).decode()


class Change(NamedTuple):
    """A file with a wrong change in it, and the tests that should notice it."""

    path: Path  # from the repository on
    source: str
    tests: Sequence[str]


def change_of(mutant: Mutant) -> Change:
    """Return the change that a mutant makes; raise `Stale` if it or its tests do not exist."""
    path = source_of(mutant, ROOT)
    for test in mutant.tests:
        file = test.partition("::")[0]
        if not (ROOT / file).exists():
            raise Stale(f"{mutant.title}: there is no {file}")
    source = mutated(path.read_text(encoding="utf-8"), mutant)
    return Change(path.relative_to(ROOT), source, mutant.tests)


def changes_of(mutants: Sequence[Mutant]) -> tuple[list[Change], list[str]]:
    """Return the changes of some mutants, and what is out of date in the list."""
    changes, problems = [], []
    for mutant in mutants:
        try:
            changes.append(change_of(mutant))
        except Stale as error:
            problems.append(str(error))
    return changes, problems


# ---- changes are made in a copy, and tests run there


def run(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a copy, on the copy's code, for `TIME_LIMIT` at most."""
    environment = os.environ | {
        "PYTHONPATH": str(root),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.run(
        ["sh", "-c", f'ulimit -t {TIME_LIMIT}; exec "$@"', "sh", sys.executable, *command],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def copied(folder: Path) -> Path:
    """Copy the repository into a folder, link `shared` beside it, and return the copy."""
    ignore_built = shutil.ignore_patterns(*BUILT)

    def ignore(path: str, names: list[str]) -> set[str]:
        imported = IMPORTED if Path(path) == ROOT / "data" else ()
        return ignore_built(path, names) | {*imported}

    copy = folder / "repository"
    shutil.copytree(ROOT, copy, ignore=ignore)
    shared = ROOT.parent / "shared"
    if shared.is_dir():
        (folder / "shared").symlink_to(shared)
    imported = run(copy, "-c", "import carry_core; print(carry_core.__file__)").stdout
    assert imported.startswith(str(folder)), f"the tests would run on {imported}"
    return copy


def failure_of(root: Path, tests: Sequence[str]) -> str:
    """Run tests in a copy, up to the first that fails; return what is printed then, else "".

    Shapes are not checked, which would double the time.
    """
    options = ["-x", "-q", "-p", "no:cacheprovider", "-o", "addopts="]
    result = run(root, "-m", "pytest", *options, *tests)
    printed = f"{result.stdout[-3000:]}{result.stderr[-300:]}"
    return f"return code {result.returncode}: {printed}" if result.returncode else ""


def noticed(changes: Sequence[Change]) -> Iterator[bool]:
    """Yield for each change True if its tests notice it, by failing or by running on and on.

    The program ends if a test fails on the code as it is.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = copied(Path(folder))
        if failure := failure_of(copy, sorted({test for x in changes for test in x.tests})):
            sys.exit(f"The tests fail on the code as it is: make them pass first.\n{failure}")
        for change in changes:
            path = copy / change.path
            before = path.read_text(encoding="utf-8")
            path.write_text(change.source, encoding="utf-8")
            yield bool(failure_of(copy, change.tests))
            path.write_text(before, encoding="utf-8")


def main(words: Sequence[str]) -> int:
    """Print which mutants survive.

    Returns 1 if a mutant survives that is not equivalent, or an equivalent one does not, and 2 if
    the list is out of date.
    """
    mutants = listed()
    if words:
        mutants = [mutant for mutant in mutants if any(word in mutant.title for word in words)]
    changes, problems = changes_of(mutants)
    if problems:
        print("workflow/mutants.toml is out of date:", *problems, sep="\n  ")
        return 2
    n_wrong = 0
    for mutant, is_noticed in zip(mutants, noticed(changes), strict=True):
        print(f"{'noticed' if is_noticed else 'SURVIVES':8}  {mutant.title}", flush=True)
        if is_noticed == bool(mutant.equivalent):
            n_wrong += 1
            print(f"  {mutant.equivalent or mutant.why}")
    print(f"{len(mutants) - n_wrong} of {len(mutants)} mutants are noticed, or are equivalent.")
    return int(n_wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
