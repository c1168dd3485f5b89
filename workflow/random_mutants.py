"""Draw random mutants with Cosmic Ray, and check that the tests nearest to each notice it.

They are of the model and what measures it: the core, the fast engines, the findings and the rules
of verdicts. The seed is the commit that is checked out, so nobody chooses it. The nearest tests are
those of the file's own folder that import it, the file of the same name first. A survivor is
printed as a diff, for somebody to judge: a test is missing there, or no test could notice it.

It runs in _build/cosmic, which has Cosmic Ray beside the packages of .venv.
"""

import ast
import difflib
import random
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from cosmic_ray.ast import get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names
from mutants import ROOT, Change, noticed

TESTS_OF = {
    "carry_core/*.py": "core",
    "carry_fast/*.py": "fast",
    "carry_paper/findings/*.py": "findings",
    "carry_paper/ledger/verdicts.py": "ledger",
}
N_MUTANTS = 20
# These take the names of variables to change.
NEED_ARGUMENTS = {"core/VariableReplacer", "core/VariableInserter"}


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
    print(f"{number - n_survivors} of {number} random mutants of commit {seed[:10]} are noticed.")
    return int(n_survivors > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else N_MUTANTS))
