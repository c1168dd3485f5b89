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
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
LIST = Path(__file__).with_suffix(".toml")
BUILT = (".*", "_build", "__pycache__", "*.egg-info")
IMPORTED = ("author", "checkpoints")  # in data/
# In seconds of CPU time. A mutant that makes its tests run on and on has been noticed.
TIME_LIMIT = 600
NOTICED = "noticed"
SURVIVES = "SURVIVES"


class Stale(Exception):
    """The list names code that does not exist."""


class TestsFail(Exception):
    """A test fails on the code as it is; the message is what pytest printed."""


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


@cache
def sources(root: Path) -> list[Path]:
    """Return the files of all packages."""
    return list(root.glob("carry_*/**/*.py"))


def source_of(mutant: Mutant, root: Path) -> Path:
    """Return the file that a mutant changes.

    Raises:
        Stale: The packages have no file of that name, or several.
    """
    paths = []
    for path in sources(root):
        if f"/{path.relative_to(root).as_posix()}".endswith(f"/{mutant.file}"):
            paths.append(path)
    if len(paths) != 1:
        raise Stale(f"{mutant.title}: {len(paths)} files are called {mutant.file}, expected one")
    return paths[0]


def scope(tree: ast.Module, where: str) -> ast.AST:
    """Return the function, class or method (`Class.method`) of this name.

    Raises:
        Stale: There is none.
    """
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


class Replace(ast.NodeTransformer):
    """Replace one node by a piece of code."""

    def __init__(self, node: ast.AST, after: str) -> None:
        self.node = node
        self.after = after

    def visit(self, node: ast.AST) -> ast.AST:
        if node is self.node:
            after = parsed(self.after)
            if isinstance(node, ast.stmt) and isinstance(after, ast.expr):
                return ast.Expr(after)
            return after
        visited: ast.AST = super().visit(node)
        return visited


@cache
def tree_of(source: str) -> ast.Module:
    """Return the tree of a source, which is not to be changed."""
    return ast.parse(source)


def place(tree: ast.Module, mutant: Mutant) -> ast.AST:
    """Return the node that a mutant replaces.

    Raises:
        Stale: The code that it replaces does not occur exactly once.
    """
    before = parsed(mutant.before)
    text = ast.dump(before)
    try:
        nodes = ast.walk(scope(tree, mutant.where))
    except Stale as error:
        raise Stale(f"{mutant.title}: {error}") from error
    places = [node for node in nodes if type(node) is type(before) and ast.dump(node) == text]
    if len(places) != 1:
        raise Stale(f"{mutant.title}: it stands there {len(places)} times, expected once")
    return places[0]


def mutated(source: str, mutant: Mutant) -> str:
    """Return the source with the change.

    Raises:
        Stale: The code that it replaces does not occur exactly once.
    """
    tree = ast.parse(source)
    Replace(place(tree, mutant), mutant.after).visit(tree)
    return ast.unparse(ast.fix_missing_locations(tree))


def stale(mutants: Sequence[Mutant], root: Path = ROOT) -> list[str]:
    """Return a text for each piece of code or test on the list that does not exist."""
    problems = []
    for mutant in mutants:
        try:
            place(tree_of(source_of(mutant, root).read_text(encoding="utf-8")), mutant)
        except Stale as error:
            problems.append(str(error))
        for test in mutant.tests:
            file = test.partition("::")[0]
            if not (root / file).exists():
                problems.append(f"{mutant.title}: there is no {file}")
    return problems


def run(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a copy, on the copy's code.

    The return code is negative if it takes longer than `TIME_LIMIT`.
    """
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
        ignored = ignore_built(path, names)
        if Path(path) == ROOT / "data":
            ignored |= set(IMPORTED)
        return ignored

    copy = folder / "repository"
    shutil.copytree(ROOT, copy, ignore=ignore)
    shared = ROOT.parent / "shared"
    if shared.is_dir():
        (folder / "shared").symlink_to(shared)
    imported = run(copy, "-c", "import carry_core; print(carry_core.__file__)").stdout
    assert imported.startswith(str(folder)), f"the tests would run on {imported}"
    return copy


def pytest(root: Path, tests: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run some tests in a copy, up to the first that fails.

    Shapes are not checked, which would double the time.
    """
    return run(root, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-o", "addopts=", *tests)


def passes(root: Path, tests: Sequence[str]) -> bool:
    """Return True if tests pass in a copy.

    Raises:
        RuntimeError: They could not be run.
    """
    result = pytest(root, tests)
    if result.returncode > 1:
        output = f"{result.stdout[-1500:]}{result.stderr[-300:]}"
        raise RuntimeError(f"{' '.join(tests)} could not be run: {output}")
    return result.returncode == 0


def outcome(mutant: Mutant, root: Path) -> str:
    """Make a mutant in a copy, run its tests, and put the code back."""
    path = source_of(mutant, root)
    source = path.read_text(encoding="utf-8")
    path.write_text(mutated(source, mutant), encoding="utf-8")
    try:
        return SURVIVES if passes(root, mutant.tests) else NOTICED
    finally:
        path.write_text(source, encoding="utf-8")


def complaint_of(root: Path, tests: Sequence[str]) -> str:
    """Run all tests on the code as it is; return what pytest prints if one fails, else ""."""
    result = pytest(root, tests)
    if result.returncode == 0:
        return ""
    return f"return code {result.returncode}: {result.stdout[-3000:]}"


def outcomes(mutants: Sequence[Mutant], tests: Sequence[str]) -> dict[Mutant, str]:
    """Run the tests of each mutant in a copy, and print each time whether they notice it.

    Raises:
        TestsFail: A test fails on the code as it is.
    """
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        copy = copied(Path(folder))
        complaint = complaint_of(copy, tests)
        if complaint:
            raise TestsFail(complaint)
        for mutant in mutants:
            results[mutant] = outcome(mutant, copy)
            print(f"{results[mutant]:8}  {mutant.title}", flush=True)
    return results


def without_parts(tests: Iterable[str]) -> list[str]:
    """Return the tests in order, each once, without those that are in a file of the list."""
    distinct = set(tests)
    return sorted(
        test for test in distinct if "::" not in test or test.partition("::")[0] not in distinct
    )


def main(words: Sequence[str]) -> int:
    """Print which mutants survive.

    Returns 1 if a mutant survives that is not equivalent, or an equivalent one does not, and 2 if
    the list is out of date or a test fails on the code as it is.
    """
    mutants = listed()
    if words:
        mutants = [mutant for mutant in mutants if any(word in mutant.title for word in words)]
    if problems := stale(mutants):
        print("workflow/mutants.toml is out of date:", *problems, sep="\n  ")
        return 2
    began = time.monotonic()
    try:
        results = outcomes(mutants, without_parts(test for m in mutants for test in m.tests))
    except TestsFail as complaint:
        print("The tests fail on the code as it is: make them pass first.", complaint, sep="\n")
        return 2
    return report(results, time.monotonic() - began)


def report(results: Mapping[Mutant, str], seconds: float) -> int:
    """Print a summary; return 1 if a result is not as it should be."""
    survivors = 0
    different = 0
    n_equivalent = 0
    for mutant, result in results.items():
        if mutant.equivalent:
            n_equivalent += 1
            print(f"equivalent: {mutant.title}\n  {mutant.equivalent}")
            if result == NOTICED:
                different += 1
                print("  and yet a test notices it")
        elif result == SURVIVES:
            survivors += 1
            print(f"no test notices {mutant.title}\n  {mutant.why}")
    n_expected = len(results) - n_equivalent
    print(f"{n_expected - survivors} of {n_expected} mutants are noticed in {seconds:.0f} s.")
    return int(survivors > 0 or different > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
