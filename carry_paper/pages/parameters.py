"""Checks of a notebook's parameters, before anything is computed."""

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from carry_core.carries import paper_name, patterns
from carry_core.errors import BadInput, check_whole
from carry_core.model import ModelConfig
from carry_train import groups

MIN_EXAMPLES = 10
# More sums than any carry class has; they still fit into memory.
MAX_EXAMPLES = 200_000
# Papermill begins the cell with its parameters by this line.
INJECTED = "# Parameters\n"
BANNER = "banner"  # the name of the line that says that they are a reader's own


def own_and_injected() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the page's own parameters, which are the book's, and those that papermill was given.

    Papermill puts them into a cell of its own, after the one tagged `parameters`. Both are empty
    where it was given none, and outside of papermill.
    """
    cells = executed_cells()
    places = [i for i, cell in enumerate(cells) if cell.startswith(INJECTED)]
    if not places:
        return {}, {}
    return _values("\n".join(cells[: places[0]])), _values(cells[places[0]])


def changed() -> dict[str, Any]:
    """Return the parameters that papermill changed; raise `BadInput` for one that is unknown."""
    own, injected = own_and_injected()
    unknown = [name for name in injected if name not in own]
    if unknown:
        plural = "s" if len(unknown) > 1 else ""
        raise BadInput(
            f"Unknown parameter{plural} {', '.join(unknown)}: expected some of {', '.join(own)}."
        )
    return {name: value for name, value in injected.items() if value != own[name]}


def in_words(values: Mapping[str, Any]) -> str:
    """Return parameters as a reader would write them, such as `run = 4, seed = 1`."""
    return ", ".join(f"{name} = {value!r}" for name, value in values.items())


def executed_cells() -> Sequence[str]:
    """Return the code of each cell that ran in this kernel; empty outside of a kernel."""
    from IPython import get_ipython

    cells: Sequence[str] = getattr(get_ipython(), "user_ns", {}).get("In", ())
    return cells


def _values(code: str) -> dict[str, Any]:
    """Return the values that code assigns, by name; the code is a cell with parameters."""
    values: dict[str, Any] = {}
    exec(code, values)
    nodes = ast.walk(ast.parse(code))
    assigned = [n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    return {name: values[name] for name in assigned}


def check_addends(config: ModelConfig, a: object, b: object) -> None:
    """Raise `BadInput` unless these are two whole numbers whose sum a model can write."""
    end = 10**config.width
    check_whole("a", a, 0, end - 1)
    check_whole("b", b, 0, end - 1)
    if a + b >= end:  # type: ignore[operator]
        raise BadInput(f"a={a}, b={b}: expected two whole numbers whose sum is below {end}.")


def check_decoders(group: str) -> None:
    """Raise `BadInput` unless a group is one of decoders (App. D)."""
    if not groups.find(group).config.causal:
        decoders = [
            candidate.name for candidate in groups.GROUPS.values() if candidate.config.causal
        ]
        raise BadInput(f"{group} has no decoders: expected {' or '.join(decoders)}.")


def check_suits(group: str, suits: bool, expected: str) -> None:
    """Raise `BadInput` unless what a page says can be true of a group; `expected` says of which."""
    if not suits:
        raise BadInput(f"{group} has {groups.find(group)}: expected {expected}.")


def chosen_classes(n_digits: int, classes: Any = None) -> list[str]:
    """Return the carry patterns that a figure shows.

    Args:
        n_digits: Digits of the numbers that are added.
        classes: Patterns (`011`) or the paper's names (`C all`), as a list or separated by
            commas; "all"; or None for five: no carry, one from the tens, a run of them in
            the middle, one into the leading digit, and one from the units through nines to
            the leading digit.

    Raises:
        BadInput: There is no such class.
    """
    all_patterns = list(patterns(n_digits))
    extra = n_digits - 3  # digits beyond three
    if classes == "all" or (classes is None and extra <= 0):
        return all_patterns
    if classes is None:
        five = [
            "000" + "0" * extra,
            "0" * extra + "010",
            "00" + "1" * extra + "0",
            "010" + "0" * extra,
            "01" + "2" * extra + "1",
        ]
        return list(dict.fromkeys(five))  # with four digits, two are the same
    # Papermill makes a whole number of `-p classes 001110`.
    text = f"{classes:0{n_digits}d}" if type(classes) is int else classes
    names = [name.strip() for name in text.split(",")] if isinstance(text, str) else text

    pattern_by_name: dict[str, str] = {}
    for pattern in all_patterns:
        name = paper_name(pattern)
        pattern_by_name |= dict.fromkeys((pattern, name, name.replace(" ", "_")), pattern)
    if not isinstance(names, list) or not names or not {*map(str, names)} <= {*pattern_by_name}:
        expected = f"None, 'all', or names such as '{chosen_classes(n_digits)[1]}'"
        raise BadInput(f"classes={classes!r} for sums of {n_digits} digits: expected {expected}.")
    return [pattern_by_name[str(name)] for name in names]
