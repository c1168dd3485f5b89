"""Where a row of the ledger comes from, as data: a measured quantity, and how runs are combined.

A quantity is a plain function of a run's model, of its survey, of all that a source has, or of a
language model; what it takes is read off its signature (`takes`). It is measured and stored once,
under its name. Several rows may read the same quantity: each names the field that it is about.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median, stdev
from typing import Any, NamedTuple

from carry_core.errors import BadInput
from carry_core.interventions import Ablation
from carry_paper.findings.base import Fields, Rule
from carry_paper.findings.survey import Need

Function = Callable[..., Any]
VALUE = "value"  # the field that a quantity is about
NO_NEED = Need()


# ---- how the values of runs are combined


def spread(values: Sequence[float]) -> float:
    """Return the standard deviation between runs, with n - 1.

    Raises:
        BadInput: There is one run only.
    """
    if len(values) < 2:
        raise BadInput("It needs two runs or more, since one has no standard deviation.")
    return stdev(values)


def ends(values: Sequence[float]) -> list[float]:
    """Return the lowest and the highest value; raise `BadInput` if there is one run only."""
    if len(values) < 2:
        raise BadInput("It is a range over runs, and there is one only.")
    return [min(values), max(values)]


COMBINE: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "mean": mean,
    "median": median,
    "count": sum,
    "standard deviation": spread,
    "range": ends,
    "lowest": min,
}


# ---- entries


class Among(NamedTuple):
    """The runs of a group that a number is about, by another quantity of theirs."""

    function: Function  # the other quantity, of a survey
    rule: Rule  # True for a run that counts
    words: str  # they follow "runs that"


class Beside(NamedTuple):
    """Runs of another group, with which a rule compares a run."""

    group: str
    field: str  # under which the rule has their values


@dataclass(frozen=True)
class Entry:
    """The quantity that a row of the ledger reads, on which runs, and what it makes of them.

    Attributes:
        function: The function that measures the quantity; None for a constant.
        groups: The groups whose runs the row is about.
        field: The field of the quantity that is the row's value, as a path such as
            `accuracy/NC/pos7`; of several fields, the row is the mean.
        rule: Decides from a run's fields whether it shows a finding, or counts in a number that is
            a count of runs.
        combine: The name in `COMBINE` of how the runs' values become the row's.
        shown_run: The released run that the paper speaks of; None if it speaks of all runs.
        among: The runs that the number is about; None if all are.
        beside: The runs of another group with which the rule compares each run.
        parents: The groups from which the runs were trained on, whose weights are read as well.
        epoch: The epoch of the weights, by the paper's count; the last if None. If it is given, the
            runs must have been trained by the paper's protocol.
        need: What the survey of a run has to cover; only for a quantity that takes a survey.
        drawn: The number of random sums on which the paper counted a share; 0 if it drew none.
        model: The key of a language model in `recordings.MODELS`; "" for trained runs.
        constant: A number that needs no runs.
        method: A sentence on how the number is obtained.
    """

    function: Function | None = None
    groups: tuple[str, ...] = ()
    field: str | tuple[str, ...] = VALUE
    rule: Rule | None = None
    combine: str = "mean"
    shown_run: int | None = None
    among: Among | None = None
    beside: Beside | None = None
    parents: tuple[str, ...] = ()
    epoch: int | None = None
    need: Need | None = None
    drawn: float | int = 0
    model: str = ""
    constant: float | int | None = None
    method: str = ""

    @property
    def places(self) -> tuple[str, ...]:
        """Return what the quantity is measured on: groups of runs, or a language model."""
        return (self.model,) if self.model else self.groups

    @property
    def all_groups(self) -> tuple[str, ...]:
        """Return all groups of runs from which the row comes."""
        beside = (self.beside.group,) if self.beside is not None else ()
        return (*self.groups, *beside, *self.parents)


def name_of(function: Function | None) -> str:
    """Return the name of a quantity: its function's, after that of its module; "" for None."""
    if function is None:
        return ""
    return f"{function.__module__.rpartition('.')[2]}.{function.__name__}"


def takes(function: Function) -> Any:
    """Return the type of what a quantity is a function of, by its first parameter."""
    first = next(iter(inspect.signature(function).parameters.values()))
    return first.annotation


def finding(
    groups: str | Sequence[str],
    function: Function,
    shows: Rule,
    *,
    value: str = VALUE,
    ablate: Sequence[Ablation] = (),
    dissect: bool = False,
    **more: Any,
) -> Entry:
    """Return the entry of a finding, whose rule is `shows` and whose field is the `value`.

    A survey has to cover what to `ablate`, besides the final MLP, and to dissect that (Sec. 5).
    `more` are other attributes of `Entry`; `method` is from the docstring if it is left out.
    """
    names = (groups,) if isinstance(groups, str) else tuple(groups)
    need = Need(frozenset(ablate), dissect)
    method = more.pop("method", "") or _method(function, value)
    return Entry(function, names, value, shows, need=need, method=method, **more)


def _method(function: Function, value: str) -> str:
    """Return what a row's value is: the quantity's own, or one of its fields."""
    first_line = (inspect.getdoc(function) or "").partition("\n")[0]
    if value == VALUE:
        return first_line
    return f"{value[:1].upper()}{value[1:]}, of: {first_line}".replace("_", " ")


def number(group: str, function: Function, need: Need = NO_NEED, **more: Any) -> Entry:
    """Return the entry of a printed number; `more` are other attributes of `Entry`."""
    return Entry(function, (group,), need=need, **more)


# ---- the fields of a quantity


class Picked(NamedTuple):
    """What a row reads of a measured quantity."""

    value: Any  # None if it was not defined
    variance: float  # that the paper's own random sums add
    fields: Fields  # what else was measured with it


def picked(measured: Fields, path: str) -> Picked:
    """Return the part of a quantity that a path names.

    A field that has a `value` of its own, as those of a dissection have, also has its own variance
    and fields. Any other is a value beside the fields of the whole quantity.

    Raises:
        BadInput: The quantity has no such field.
    """
    node: Any = measured
    if path != VALUE:
        for part in path.split("/"):
            try:
                node = node[int(part)] if isinstance(node, Sequence) else node[part]
            except (IndexError, KeyError, TypeError, ValueError) as error:
                raise BadInput(
                    f"What was measured has no field {path!r}: measure it anew."
                ) from error
    if not isinstance(node, Mapping):
        node = {**measured, VALUE: node, "variance": 0.0}
    fields = dict(node)
    return Picked(fields.pop(VALUE, None), fields.pop("variance", None) or 0.0, fields)
