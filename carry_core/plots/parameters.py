"""A page's parameters, checked before anything is computed, and the line that says where its weights come from."""

from typing import Any

from carry_core import groups, runs
from carry_core.carries import paper_name, patterns
from carry_core.errors import BadInput, check_whole
from carry_core.groups import MAIN, Group
from carry_core.runs import Runs
from carry_core.training import recipes

MIN_EXAMPLES, MAX_EXAMPLES = 10, 200_000  # sums of a draw: more than any class has, and they still fit into memory


def check(
    *,
    source: str,
    group: str,
    run: object = None,
    n_examples: object = MAX_EXAMPLES,
    seed: object = 0,
    at_least: int = MIN_EXAMPLES,
) -> Runs:
    """Check a notebook's parameters before anything is computed, and load the group they name.

    Parameters that a notebook does not have are left out, and are then what passes. With `at_least` so many sums what
    it measures is defined; `seed` is that of their draw.

    Raises:
        BadInput: one of them is not what it should be; the message says which and what was expected.
    """
    check_whole("n_examples", n_examples, at_least, MAX_EXAMPLES, "sums")
    check_whole("seed", seed, 0, 2**63 - 1)
    loaded = runs.load(group, source)
    if run is not None:
        if type(run) is not int:
            raise BadInput(f"run={run!r}: expected None or the number of a run, such as {loaded.numbers[0]}.")
        loaded.model(run)
    return loaded


def parse_class(text: str, n_digits: int = 3) -> str:
    """The pattern that `text` names, as a pattern (`011`) or by the paper's name (`C all`).

    Raises:
        BadInput: no such class.
    """
    for pattern in patterns(n_digits):
        if text in (pattern, paper_name(pattern), paper_name(pattern).replace(" ", "_")):
            return pattern
    known = ", ".join(paper_name(p) for p in patterns(n_digits)[:6])
    raise BadInput(f"No carry class {text!r} for {n_digits} digits: expected one such as {known}.")


def chosen_classes(n_digits: int, wanted: Any = None) -> list[str]:
    """The carry patterns that a figure shows.

    Args:
        n_digits: of the sums.
        wanted: names, in a list or with commas between; `all`; None for five: no carry, one from the tens, a run of
            them in the middle, one into the leading digit, and one from the units through nines to the leading digit.

    Raises:
        BadInput: no such class.
    """
    if wanted is None:
        n = n_digits - 3
        five = ["000" + "0" * n, "0" * n + "010", "00" + "1" * n + "0", "010" + "0" * n, "01" + "2" * n + "1"]
        return list(dict.fromkeys(five if n > 0 else patterns(n_digits)))
    if wanted == "all":
        return list(patterns(n_digits))
    text = f"{wanted:0{n_digits}d}" if type(wanted) is int else wanted  # what papermill makes of `-p classes 001110`
    names = [name.strip() for name in text.split(",")] if isinstance(text, str) else text
    try:
        if not isinstance(names, list) or not names:
            raise BadInput("not a list of names")
        return [parse_class(name, n_digits) for name in names]
    except BadInput as error:
        expected = f"expected None, 'all', or names such as '{chosen_classes(n_digits)[1]}'"
        raise BadInput(f"classes={wanted!r} for sums of {n_digits} digits: {expected}.") from error


def decoder_group(name: str) -> Group:
    """The group called `name`, if its models are decoders (App. D).

    Raises:
        BadInput: no such group, or its models are encoders.
    """
    group = groups.find(name)
    if not group.config.causal:
        known = [other.name for other in groups.GROUPS.values() if other.config.causal]
        raise BadInput(f"{name} has no decoders: expected {' or '.join(known)}.")
    return group


def listed_groups(names: Any) -> list[str]:
    """Names of groups as a list, from a list or from one name, which is all that papermill's command can give.

    Raises:
        BadInput: neither, or no such group.
    """
    if not isinstance(names, str | list):
        raise BadInput(f"{names!r}: expected a group or a list of groups, such as {MAIN!r}.")
    return [groups.find(name).name for name in ([names] if isinstance(names, str) else names)]


def provenance(loaded: Runs, beside: Runs | None = None) -> str:
    """Where a page's weights come from, and those it compares them with; whether they stand in for others."""
    if beside is not None:
        pair = (loaded, beside)
        how = {(x.record["recipe"], x.record["epochs"] / recipes.planned_epochs(x)) for x in pair if x.source == "ours"}
        note = "" if len(how) < 2 else " They were not trained alike: what differs may be the training's doing."
        return f"{provenance(loaded)} Beside it {provenance(beside)}{note}"
    one = len(loaded.numbers) == 1
    n_runs = "1 run" if one else f"{len(loaded.numbers)} runs"
    if loaded.source == "author":
        return f"{loaded.group}: {n_runs} of the author's release."
    sessions = [session for r in loaded.record["runs"] for session in (r, *r.get("sessions", ()))]
    precision, device, torchs = (
        ", ".join(sorted({s[key] for s in sessions if key in s})) for key in ("precision", "device", "torch")
    )
    trained = recipes.training(loaded)
    text = f"{loaded.group}: {n_runs} of our own, {trained}, {precision}, {device}, torch {torchs}."
    stand = "It stands in for a run" if one else "They stand in for runs"
    planned = groups.find(loaded.group).epochs
    return text + (f" {stand} of all {planned} epochs by the recipe “paper”." if recipes.stands_in(loaded) else "")
