"""Draw mutants, small wrong changes, with Cosmic Ray, and check that the nearest tests notice them.

They are of the model and what measures it: the core, the fast engines, the findings and the rules
of verdicts. The seed is the commit that is checked out, so nobody chooses it. The nearest tests are
those of the file's own folder that import it, the file of the same name first.

Each mutant is put into a copy of this repository, and pytest runs there until a test fails. All of
them are tried on the fast tests first, and then what survived on the slow ones. A survivor is
printed as a diff, for somebody to judge: a test is missing there, or no test could notice it.

The program runs in _build/cosmic, which has Cosmic Ray beside the packages of .venv, where this
module is tested without it. Each pytest is forked from a process that has imported what takes long
and does not change.
"""

import ast
import difflib
import multiprocessing
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
BUILT = (".*", "_build", "__pycache__", "*.egg-info")
IMPORTED = ("author", "checkpoints")  # in data/
# A mutant that makes its tests run on and on, or take all memory, has been noticed.
TIME_LIMIT = 300  # seconds of CPU time
MEMORY_LIMIT = 12 << 30  # bytes
NOT_RUN = "not (types or cluster or site or lens)"
FORKED = multiprocessing.get_context("forkserver")
PRELOADED = ("torch", "pandas", "scipy.stats", "matplotlib.pyplot", "sklearn.linear_model")
# The process that forks has imported plugins of pytest.
NOT_REWRITTEN = "ignore::pytest.PytestAssertRewriteWarning"

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


@cache
def places(source: str) -> list[list[tuple[str, int]]]:
    """Return the operators, each with an index, that change each place that can be changed."""
    from cosmic_ray.ast import get_ast
    from cosmic_ray.plugins import get_operator, operator_names

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
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

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


# ---- each is put into a copy, and tests run there


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
    return copy


def run_pytest(root: Path, arguments: Sequence[str], log: Path) -> None:
    """Run pytest in this process, on a copy's code, and exit as it does.

    Shapes are not checked, which would double the time.
    """
    resource.setrlimit(resource.RLIMIT_CPU, (TIME_LIMIT, TIME_LIMIT))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(root)
    sys.path.insert(0, str(root))
    os.environ["PYTHONPATH"] = str(root)
    options = ["-q", "-x", "-p", "no:cacheprovider", "-o", "addopts=", "-W", NOT_REWRITTEN]
    code = int(pytest.main([*options, *arguments]))
    os._exit(0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else code)


def failure_of(root: Path, *arguments: str) -> str:
    """Run pytest in a copy, up to the first failure; return what is printed then, else ""."""
    log = root.parent / "log"
    process = FORKED.Process(target=run_pytest, args=(root, arguments, log))
    process.start()
    process.join()
    return f"exit code {process.exitcode}: {log.read_text()[-3000:]}" if process.exitcode else ""


class Trial:
    """A copy of the repository, in which changes are made and taken back."""

    def __init__(self, folder: Path) -> None:
        self.root = copied(folder)
        self.failing: set[str] = set()  # tests that failed with a change

    def notices(self, change: Change, marked: str) -> bool:
        """Return True if the tests with these marks fail with a change, or run on and on."""
        path = self.root / change.path
        path.write_text(change.source, encoding="utf-8")
        same_name, *others = change.tests
        failure = failure_of(self.root, "-m", marked, same_name)
        if others and not failure:
            failure = failure_of(self.root, "-m", marked, *others)
        shutil.copy2(ROOT / change.path, path)
        for bytecode in path.parent.glob(f"__pycache__/{path.stem}.*"):
            bytecode.unlink()
        self.failing |= {*re.findall(r"^(?:FAILED|ERROR) ([^\s\[]+)", failure, re.M)}
        return bool(failure)

    def check(self) -> None:
        """End the program if a test that failed with a change fails on the code as it is, too."""
        if failure := failure_of(self.root, *sorted(self.failing)):
            sys.exit(f"Tests fail on the code as it is: make them pass first.\n{failure}")


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
    survivors = drawn(number, seed)
    os.environ["OMP_NUM_THREADS"] = "1"
    FORKED.set_forkserver_preload([*PRELOADED])
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(Path(folder))
        for marked in ("not slow", "slow"):
            tried, survivors = survivors, []
            for mutant in tried:
                if trial.notices(mutant, f"{marked} and {NOT_RUN}"):
                    print(f"noticed  {mutant.path}", flush=True)
                else:
                    survivors.append(mutant)
                    tests = " ".join(mutant.tests)
                    print(f"SURVIVES {marked} {tests}\n{difference(mutant)}", flush=True)
        trial.check()
    print(f"{number - len(survivors)} of {number} mutants of commit {seed[:10]} are noticed.")
    return int(len(survivors) > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else N_MUTANTS))
