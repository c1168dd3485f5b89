"""Draw mutants, small wrong changes, with Cosmic Ray, and check that the nearest tests notice them.

They are of the model and what measures it: the core, the fast engines, the findings and the rules
of verdicts. The seed is the commit that is checked out, so nobody chooses it. The nearest tests are
those of the file's own folder that import it, the file of the same name first. A survivor is
printed as a diff, for somebody to judge: a test is missing there, or no test could notice it.

The changes are made one at a time, in a copy of this repository.
It runs in _build/cosmic, which has Cosmic Ray beside the packages of .venv.
"""

import ast
import difflib
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from cosmic_ray.ast import get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).parent.parent
BUILT = (".*", "_build", "__pycache__", "*.egg-info")
IMPORTED = ("author", "checkpoints")  # in data/
# In seconds of CPU time. A mutant that makes its tests run on and on has been noticed.
TIME_LIMIT = 600

TESTS_OF = {
    "carry_core/*.py": "core",
    "carry_fast/*.py": "fast",
    "carry_paper/findings/*.py": "findings",
    "carry_paper/ledger/verdicts.py": "ledger",
}
N_MUTANTS = 20
# These take the names of variables to change.
NEED_ARGUMENTS = {"core/VariableReplacer", "core/VariableInserter"}


class Change(NamedTuple):
    """A file with a wrong change in it, and the tests that should notice it."""

    path: Path  # from the repository on
    source: str
    tests: Sequence[str]


def nearest(path: Path, folder: str) -> tuple[str, ...]:
    """Return the test files of a folder that import a module, that of the same name first."""
    package = ".".join(path.parent.parts)
    imported = re.compile(
        rf"from {package} import (\([^)]*|.*)\b{path.stem}\b|\b{package}\.{path.stem}\b"
    )
    same_name = ROOT / "tests" / folder / f"test_{path.stem}.py"
    others = []
    for test in sorted((ROOT / "tests" / folder).glob("test_*.py")):
        if test != same_name and imported.search(test.read_text(encoding="utf-8")):
            others.append(test)
    files = [same_name, *others] if same_name.exists() else others
    return tuple(file.relative_to(ROOT).as_posix() for file in files)


def without_annotations(source: str) -> str:
    """Return what a source does, without its types: a wrong type is for mypy to notice."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.FunctionDef):
            node.returns = None
    return ast.dump(tree)


def places(source: str) -> list[list[tuple[str, int]]]:
    """Return the operators, each with an index, that change each place that can be changed."""
    operators = defaultdict(list)
    nodes = []
    todo = [get_ast(source)]
    while todo:
        node = todo.pop()
        nodes.append(node)
        todo.extend(reversed(getattr(node, "children", [])))
    for name in sorted({*operator_names()} - NEED_ARGUMENTS):
        operator = get_operator(name)()
        index = 0
        for node in nodes:
            for start, _ in operator.mutation_positions(node):
                operators[start].append((name, index))
                index += 1
    return list(operators.values())


def drawn(number: int, seed: str) -> list[Change]:
    """Draw mutants: a file by its length, a place in it, one of the operators for that place."""
    chance = random.Random(seed)
    folders: dict[Path, str] = {}
    for pattern, folder in TESTS_OF.items():
        folders |= dict.fromkeys(sorted(ROOT.glob(pattern)), folder)
    sources = {path: path.read_text(encoding="utf-8") for path in folders}
    lengths = [source.count("\n") for source in sources.values()]
    mutants: list[Change] = []
    while len(mutants) < number:
        (path,) = chance.choices(list(sources), lengths)
        source = sources[path]
        relative = path.relative_to(ROOT)
        tests = nearest(relative, folders[path])
        possible = places(source)
        if not possible or not tests:
            continue
        name, index = chance.choice(chance.choice(possible))
        mutated = mutate_code(source, get_operator(name)(), index)
        try:
            changes = without_annotations(mutated) != without_annotations(source)
        except SyntaxError:
            continue
        mutant = Change(relative, mutated, tests)
        if changes and mutant not in mutants:
            mutants.append(mutant)
    return mutants


# ---- they are made in a copy, and tests run there


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


def difference(mutant: Change) -> str:
    """Return a mutant as a diff."""
    source = (ROOT / mutant.path).read_text(encoding="utf-8").splitlines(True)
    name = str(mutant.path)
    return "".join(
        difflib.unified_diff(source, mutant.source.splitlines(True), name, "mutant", n=1)
    )


def main(number: int) -> int:
    """Print the diff of each mutant that survives; return 1 if one does."""
    head = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    seed = subprocess.run(head, capture_output=True, text=True, check=True).stdout.strip()
    mutants = drawn(number, seed)
    n_survivors = 0
    for mutant, is_noticed in zip(mutants, noticed(mutants), strict=True):
        if is_noticed:
            print(f"noticed  {mutant.path}", flush=True)
        else:
            n_survivors += 1
            print(f"SURVIVES {' '.join(mutant.tests)}\n{difference(mutant)}", flush=True)
    print(f"{number - n_survivors} of {number} mutants of commit {seed[:10]} are noticed.")
    return int(n_survivors > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else N_MUTANTS))
