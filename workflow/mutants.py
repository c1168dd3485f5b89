"""Draw mutants, small wrong changes, with Cosmic Ray, and check that the nearest tests notice them.

They are of the model and what measures it: the core, the fast engines, the findings and the rules
of verdicts. The seed is the commit that is checked out, so nobody chooses it. The nearest tests are
those of the file's own folder that import it, the file of the same name first.

Cosmic Ray puts each mutant into a clone of this repository, and pytest runs there until a test
fails. A survivor is printed as a diff, for somebody to judge: a test is missing there, or no test
could notice it. The program runs in _build/cosmic, which has Cosmic Ray beside the packages of
.venv.
"""

import ast
import os
import random
import re
import resource
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from cosmic_ray.commands.init import _all_work_items
from cosmic_ray.mutating import mutate_and_test, mutate_code
from cosmic_ray.plugins import get_operator
from cosmic_ray.testing import run_tests
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkerOutcome

ROOT = Path(__file__).parent.parent
# A mutant that makes its tests run on and on, or take all memory, has been noticed.
TIME_LIMIT = 900  # seconds
MEMORY_LIMIT = 12 << 30  # bytes
OPTIONS = "-q -x -p no:cacheprovider -o addopts= -m 'not (types or cluster or site or lens)'"
TESTS_OF = {
    "carry_core/*.py": "core",
    "carry_fast/*.py": "fast",
    "carry_paper/findings/*.py": "findings",
    "carry_paper/ledger/verdicts.py": "ledger",
}
N_MUTANTS = 20


def nearest(path: Path) -> list[str]:
    """Return the test files that import a module, that of the same name first."""
    (folder,) = (folder for pattern, folder in TESTS_OF.items() if path.match(pattern))
    package = ".".join(path.parent.parts)
    imported = re.compile(
        rf"from {package} import (\([^)]*|.*)\b{path.stem}\b|\b{package}\.{path.stem}\b"
    )
    same_name = f"test_{path.stem}.py"
    tests = []
    for test in sorted(Path("tests", folder).glob("test_*.py")):
        if test.name == same_name or imported.search(test.read_text(encoding="utf-8")):
            tests.append(test)
    return [str(test) for test in sorted(tests, key=lambda test: test.name != same_name)]


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


def changes_code(mutant: MutationSpec) -> bool:
    """Return True if the changed file can be read, and does something else."""
    source = mutant.module_path.read_text(encoding="utf-8")
    mutated = mutate_code(source, get_operator(mutant.operator_name)(), mutant.occurrence)
    try:
        return without_annotations(mutated) != without_annotations(source)
    except SyntaxError:
        return False


def drawn(number: int, seed: str) -> list[MutationSpec]:
    """Draw mutants: a file by its length, a place in it, one of the operators for that place."""
    chance = random.Random(seed)
    paths = [path for pattern in TESTS_OF for path in sorted(Path().glob(pattern)) if nearest(path)]
    lengths = [path.read_text(encoding="utf-8").count("\n") for path in paths]
    mutants: list[MutationSpec] = []
    while len(mutants) < number:
        by_place: dict[tuple[int, int], list[MutationSpec]] = {}
        for item in _all_work_items(chance.choices(paths, lengths), {}):
            for mutation in item.mutations:
                by_place.setdefault(mutation.start_pos, []).append(mutation)
        if by_place:
            mutant = chance.choice(chance.choice([*by_place.values()]))
            if mutant not in mutants and changes_code(mutant):
                mutants.append(mutant)
    return mutants


def pytest_command(tests: Iterable[str]) -> str:
    """Return a command that runs some tests up to the first failure."""
    return f"{shlex.quote(sys.executable)} -m pytest {OPTIONS} {shlex.join(tests)}"


def clone_into(folder: Path) -> None:
    """Clone the repository into a folder, link `shared` beside it, and work there from now on."""
    clone = folder / "repository"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    shared = ROOT.parent / "shared"
    if shared.is_dir():
        (folder / "shared").symlink_to(shared)
    os.chdir(clone)
    os.environ |= {"PYTHONPATH": str(clone), "OMP_NUM_THREADS": "1"}
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))


def main(number: int) -> int:
    """Print the diff of each mutant that survives; return 1 if one does."""
    head = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    seed = subprocess.run(head, capture_output=True, text=True, check=True).stdout.strip()
    n_survivors = 0
    failing: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        clone_into(Path(folder))
        for mutant in drawn(number, seed):
            tests = nearest(mutant.module_path)
            result = mutate_and_test([mutant], pytest_command(tests), TIME_LIMIT)
            if result.worker_outcome != WorkerOutcome.NORMAL:
                sys.exit(result.output)
            if result.is_killed:
                print(f"noticed  {mutant.module_path}", flush=True)
                failing |= {*re.findall(r"^(?:FAILED|ERROR) ([^\s\[]+)", result.output, re.M)}
            else:
                n_survivors += 1
                print(f"SURVIVES {shlex.join(tests)}\n{result.diff}", flush=True)
        if failing:
            outcome, output = run_tests(pytest_command(sorted(failing)), TIME_LIMIT)
            if outcome != TestOutcome.SURVIVED:
                sys.exit(
                    f"Tests fail on the code as it is: make them pass first.\n{output[-3000:]}"
                )
    print(f"{number - n_survivors} of {number} mutants of commit {seed[:10]} are noticed.")
    return int(n_survivors > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else N_MUTANTS))
