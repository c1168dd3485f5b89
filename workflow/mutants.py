"""Does a test notice each of the small wrong changes in mutants.toml? One at a time, in copies of this repository.

A mutant is a piece of code and what stands in its place. The piece is compared as Python parses it,
so line breaks, quotes and commas don't matter, and it has to stand exactly once in the function
that `where` names ("" for the whole file): where it doesn't, the list is out of date, which is said
before anything runs. `tests` are those that should notice. A mutant with a reason in `equivalent`
changes nothing that can be observed, so its tests should pass.

Words on the command line, such as `measure.py decision_head`, choose the mutants that have one of
them in their title.
"""

import ast
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
LIST = Path(__file__).with_suffix(".toml")
BUILT = (".*", "_build", "__pycache__", "*.egg-info")
IMPORTED = ("author", "checkpoints")  # in data/
COPIES = 2  # at work at the same time
# of the processor, in seconds: a mutant that makes its tests run on and on has been noticed
TIME_LIMIT = 600
NOTICED, SURVIVES = "noticed", "SURVIVES"


class Stale(Exception):
    """The list names code that is not there."""


@dataclass(frozen=True)
class Mutant:
    """A wrong change to one function, and the tests that should notice it."""

    # in a package, such as `measure.py`; with its folder where the name alone is not enough
    file: str
    where: str  # the function or method
    before: str
    after: str
    tests: tuple[str, ...]
    why: str  # what would be wrong
    equivalent: str = ""  # why nothing can notice it

    @property
    def title(self) -> str:
        place = " ".join(filter(None, (self.file, self.where)))
        return f"{place}: {self.before}  ->  {self.after}"


def listed(path: Path = LIST) -> list[Mutant]:
    """The mutants of the list."""
    tables = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    return [Mutant(**{**table, "tests": tuple(table["tests"])}) for table in tables]


def source_of(mutant: Mutant, root: Path) -> Path:
    """The file that a mutant changes; `Stale` unless there is exactly one of that name in the packages."""
    name = f"/{mutant.file}"
    paths = [
        path
        for path in root.glob("carry_*/**/*.py")
        if f"/{path.relative_to(root).as_posix()}".endswith(name)
    ]
    if len(paths) != 1:
        raise Stale(f"{mutant.title}: {len(paths)} files are called {mutant.file}, expected one")
    return paths[0]


def scope(tree: ast.Module, where: str) -> ast.AST:
    """The function, class or method of this name, `Class.method` for the latter; `Stale` if there is none."""
    node: ast.AST = tree
    for name in filter(None, where.split(".")):
        named = [child for child in ast.walk(node) if getattr(child, "name", None) == name]
        if not named:
            raise Stale(f"there is no {where}")
        node = named[0]
    return node


def parsed(text: str) -> ast.AST:
    """An expression or a statement."""
    (statement,) = ast.parse(text).body
    return statement.value if isinstance(statement, ast.Expr) else statement


class Replace(ast.NodeTransformer):
    """Put other code in place of some, and count how often that was done."""

    def __init__(self, before: str, after: str) -> None:
        self.wanted, self.after, self.count = ast.dump(parsed(before)), after, 0

    def visit(self, node: ast.AST) -> ast.AST:
        if ast.dump(node) == self.wanted:
            self.count += 1
            return parsed(self.after)
        return super().visit(node)


def mutated(source: str, mutant: Mutant) -> str:
    """The source with the change; `Stale` if what is to be changed does not stand there exactly once."""
    tree = ast.parse(source)
    change = Replace(mutant.before, mutant.after)
    try:
        change.visit(scope(tree, mutant.where))
    except Stale as error:
        raise Stale(f"{mutant.title}: {error}") from error
    if change.count != 1:
        raise Stale(f"{mutant.title}: it stands there {change.count} times, expected once")
    return ast.unparse(ast.fix_missing_locations(tree))


def stale(mutants: Sequence[Mutant], root: Path = ROOT) -> list[str]:
    """What of the list is no longer true of the code and the tests."""
    found = []
    for mutant in mutants:
        try:
            mutated(source_of(mutant, root).read_text(encoding="utf-8"), mutant)
        except Stale as error:
            found.append(str(error))
        files = [test.partition("::")[0] for test in mutant.tests]
        found += [
            f"{mutant.title}: there is no {file}" for file in files if not (root / file).exists()
        ]
    return found


def run(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a copy, on the copy's code; its return code is negative where it takes too long."""
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
    """A copy of the repository, with what lies beside it in reach."""
    built = shutil.ignore_patterns(*BUILT)

    def left_out(where: str, names: list[str]) -> set[str]:
        return built(where, names) | (set(IMPORTED) if Path(where) == ROOT / "data" else set())

    shutil.copytree(ROOT, folder / "repository", ignore=left_out)
    if (beside := ROOT.parent / "shared").is_dir():
        (folder / "shared").symlink_to(beside)
    imported = run(
        folder / "repository", "-c", "import carry_core; print(carry_core.__file__)"
    ).stdout
    assert imported.startswith(str(folder)), f"the tests would run on {imported}"
    return folder / "repository"


def pytest(root: Path, tests: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run some tests in a copy, up to the first that fails; without shape checks, which would double the time."""
    return run(root, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-o", "addopts=", *tests)


def passes(root: Path, tests: Sequence[str]) -> bool:
    """Whether tests pass in a copy; RuntimeError if they could not be run."""
    ran = pytest(root, tests)
    if ran.returncode > 1:
        raise RuntimeError(
            f"{' '.join(tests)} could not be run: {ran.stdout[-1500:]}{ran.stderr[-300:]}"
        )
    return ran.returncode == 0


def outcome(mutant: Mutant, root: Path) -> str:
    """Make a mutant in a copy, ask its tests, and put the code back."""
    path = source_of(mutant, root)
    source = path.read_text(encoding="utf-8")
    path.write_text(mutated(source, mutant), encoding="utf-8")
    try:
        return SURVIVES if passes(root, mutant.tests) else NOTICED
    finally:
        path.write_text(source, encoding="utf-8")


def unchanged(free: "queue.SimpleQueue[Path]", tests: Sequence[str]) -> str:
    """What pytest says of all tests on the code as it is, if one fails; else nothing."""
    root = free.get()
    try:
        ran = pytest(root, tests)
        return f"return code {ran.returncode}: {ran.stdout[-3000:]}" if ran.returncode else ""
    finally:
        free.put(root)


def main(arguments: Sequence[str]) -> int:
    """Say what survives; 1 if a mutant does that is not equivalent, 2 if the list is out of date."""
    every = listed()
    mutants = [m for m in every if not arguments or any(word in m.title for word in arguments)]
    if problems := stale(mutants):
        print("workflow/mutants.toml is out of date:", *problems, sep="\n  ")
        return 2
    tests = {test for mutant in mutants for test in mutant.tests}
    tests = {test for test in tests if "::" not in test or test.partition("::")[0] not in tests}
    began = time.monotonic()
    found: dict[Mutant, str] = {}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(COPIES) as pool:
        free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for i in range(COPIES):
            free.put(copied(Path(folder) / str(i)))

        def ask(mutant: Mutant) -> str:
            root = free.get()
            try:
                return outcome(mutant, root)
            finally:
                free.put(root)

        as_it_is = pool.submit(unchanged, free, sorted(tests))
        waiting = {pool.submit(ask, mutant): mutant for mutant in mutants}
        for done in as_completed([as_it_is, *waiting]):
            if done is as_it_is:
                if complaint := as_it_is.result():
                    print(
                        "The tests fail on the code as it is: make them pass first.",
                        complaint,
                        sep="\n",
                    )
                    pool.shutdown(cancel_futures=True)
                    return 2
            else:
                found[waiting[done]] = done.result()
                print(f"{done.result():8}  {waiting[done].title}", flush=True)
    survivors = [m for m in mutants if found[m] == SURVIVES and not m.equivalent]
    different = [m for m in mutants if found[m] == NOTICED and m.equivalent]
    equivalent = [m for m in mutants if m.equivalent]
    for mutant in equivalent:
        print(f"equivalent: {mutant.title}\n  {mutant.equivalent}")
    for mutant in survivors:
        print(f"no test notices {mutant.title}\n  {mutant.why}")
    for mutant in different:
        print(f"listed as equivalent, and yet a test notices {mutant.title}")
    counted, seconds = len(mutants) - len(equivalent), time.monotonic() - began
    print(f"{counted - len(survivors)} of {counted} mutants are noticed in {seconds:.0f} s.")
    return int(bool(survivors or different))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
