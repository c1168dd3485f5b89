"""No name is bound that says nothing, such as `found`."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

from carry_core.files import ROOT

OUR_FOLDERS = (
    *("carry_core", "carry_fast", "carry_train", "carry_paper"),
    *("workflow", "tests", "notebooks"),
)
# These words say nothing about what a name stands for.
BANNED_WORDS = """
found each there every shown kept known told here its said at_hand roles forks edits longer
draws
"""


def code_of(path: Path) -> Iterator[str]:
    """Yield the code of a module, or of each code cell of a notebook."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield text
        return
    for cell in json.loads(text)["cells"]:
        if cell["cell_type"] == "code":
            yield "".join(cell["source"])


def banned_bindings(code: str) -> list[str]:
    """Return the banned names that some code binds, as often as it binds them."""
    names = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append(node.id)
        elif isinstance(node, ast.arg):
            names.append(node.arg)
    return [name for name in names if name in BANNED_WORDS.split()]


def test_no_file_binds_a_banned_name():
    bindings = {}
    for folder in OUR_FOLDERS:
        for path in (ROOT / folder).rglob("*.ipynb" if folder == "notebooks" else "*.py"):
            names = [name for code in code_of(path) for name in banned_bindings(code)]
            if names:
                bindings[path.relative_to(ROOT).as_posix()] = sorted(names)
    assert bindings == {}, "call these by what they are"
