"""A page of the book: its checked parameters, its runs, and what it shows of them.

    page = Page("fig03", source=source, group=group, run=run, n_examples=n_examples, seed=seed)
    page.verdicts("finding/staircase", "finding/previous_sum")

    maps = ...  # computed from page.runs
    page.figure(draw, page.beside(maps), height=5.8, name="figure", alt="Attention maps of …")
    page.words(staircase=shows.index[shows], exact_match=mean, provenance=page.provenance())

    page.facts({"Every model answers 352 + 271": answers.all()})

A page's sentences refer to numbers and lists of runs by {glue:text}`name`, and to the box and to
figures with a `name` by {glue:}`name`. What else they say is typed, and a fact beside it stops the
build where it is not so.
"""

import html
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Unpack

from matplotlib.figure import SubFigure
from pandas import DataFrame, Index

from carry_core.errors import BadInput, check_whole
from carry_core.runs import FIRST, LAST, History, at_path, folder
from carry_paper import author
from carry_paper.catalogue import GroupRuns, find, is_path, load, load_curves
from carry_paper.findings.interchange_maps import MapsOfRuns
from carry_paper.ledger import ledger
from carry_paper.pages import author_side, box, parameters
from carry_paper.pages.html import Html
from carry_paper.pages.provenance import measured_anew, provenance, tested_epochs
from carry_paper.pages.show import glue, show
from carry_paper.pages.values import in_ranges, listed_runs
from carry_paper.plots.sides import Layout, subfigures
from carry_train import groups

MAX_SEED = 2**63 - 1
# The environment of a kernel in which a reader may have edited any cell: Jupyter's and Colab's.
IN_JUPYTER = {"JPY_SESSION_NAME", "COLAB_RELEASE_TAG"}


def name_of(group: str | os.PathLike[str]) -> str:
    """Return the name of a group, or of that of a path's runs; raise `BadInput` without one."""
    return at_path(Path(group))[0] if is_path(group) else groups.find(str(group)).name


@dataclass
class PageWithoutRuns:
    """A page that shows stored results, or a language model's, and loads no group of runs.

    Raises:
        BadInput: Papermill was given a parameter that the page does not have.
    """

    name: str  # with which those of the author's arrays begin
    _: KW_ONLY
    source: str | None = None  # None if the page is about both
    group: str | None = None
    path: Path | None = field(default=None, init=False)  # given in place of a group
    runs: GroupRuns | None = field(default=None, init=False, repr=False)  # that a `Page` loads
    # True if the page runs with its own parameters, about which its text is, and not in Jupyter,
    # where a reader may have edited them.
    as_in_the_book: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        changed = parameters.changed()
        self.as_in_the_book = not changed and not IN_JUPYTER & os.environ.keys()
        if changed:
            own, _ = parameters.own_and_injected()
            line = (
                f"The text is about the page as it is in the book ({parameters.in_words(own)});"
                f" figures and tables are yours ({parameters.in_words(changed)})."
            )
            text = html.escape(line, quote=False)
            show(Html(f"<p><strong>{text}</strong></p>", line), name=parameters.BANNER)

    def show(self, item: Any, name: str | None = None, alt: str = "", data: Any = None) -> None:
        """Put a figure, a table, or a part of the ledger on the page, as `pages.show` does."""
        show(item, name, alt, data)

    def verdicts(
        self, *claims: str, words: Mapping[str, str] | None = None, all_groups: bool = False
    ) -> None:
        """Put the box with the paper's claims and the verdicts at the top of the page.

        The claims and the words are as in `box.verdict_box`. A page about several groups judges the
        claims of `all_groups`.
        """
        group = None if all_groups or self.runs is None else self.group
        verdicts = box.verdict_box(claims, group, words or {}, self.runs, self.path)
        show(verdicts, name="verdicts")

    def beside(
        self, data: Any, part: str = "", group: str | None = None, *, stored_as: str | None = None
    ) -> dict[str, Any]:
        """Return a figure's data by side: the author's as it is stored, and this.

        The author's has the name of the page, or `stored_as`, and a `part` if there are several.
        The data are a frame, or values by name that become arrays.
        """
        page_name = stored_as or self.name
        name = f"{page_name}_{part}" if part else page_name
        return author_side.beside(name, data, str(self.source), str(group or self.group))

    def figure(
        self,
        draw: Callable[[SubFigure, Any], None],
        sides: Mapping[str, Any],
        *,
        alt: str,
        name: str | None = None,
        **layout: Unpack[Layout],
    ) -> None:
        """Draw each side of a figure by the same code, and put it on the page.

        `sides` are as from `beside`, `alt` and `name` as for `pages.show`, and the layout as for
        `plots.sides.subfigures`.
        """
        show(subfigures(sides, draw, **layout), name, alt)

    def facts(self, facts: Mapping[str, Any]) -> None:
        """Check what the page's text says, unless the page runs with parameters of a reader's own.

        `facts` has True for what is so, by the part of the text that says it, word for word.

        Raises:
            AssertionError: A sentence of the book is false.
        """
        false = [f"“{sentence}”" for sentence, holds in facts.items() if not holds]
        if false and self.as_in_the_book:
            raise AssertionError(f"The page's text says what is not so: {'; '.join(false)}.")

    def words(self, **values: Any) -> None:
        """Store numbers, and lists of runs, for the page's sentences; each name once.

        A list of runs, such as `shows.index[shows]`, becomes `(0, 1 and 3)`.
        """
        are_runs = {name for name, value in values.items() if isinstance(value, list | Index)}
        glue({name: listed_runs(x) if name in are_runs else x for name, x in values.items()})


@dataclass
class Page(PageWithoutRuns):
    """A page about a group of runs.

    In place of a group, it takes the path of a run's file, or of a folder with some, as `runs.load`
    does. Then these are the page's runs, and `group` is the name of theirs.

    Raises:
        BadInput: A parameter is out of range, the runs are missing, or papermill was given a
            parameter that the page does not have.
    """

    _: KW_ONLY
    source: str
    group: Any  # a name or a path, and then always a name
    run: Any = None  # of any number; None: the page's choice
    n_examples: Any = parameters.MAX_EXAMPLES  # the number of random sums
    seed: Any = 0  # of these sums
    at_least: int = parameters.MIN_EXAMPLES  # the fewest that measurements need
    runs: GroupRuns = field(init=False, repr=False)
    maps: MapsOfRuns | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        folder(self.source)  # refuses another source
        of_path = self._load_path() if is_path(self.group) else None
        groups.find(self.group)
        check_whole("n_examples", self.n_examples, self.at_least, parameters.MAX_EXAMPLES, "sums")
        check_whole("seed", self.seed, 0, MAX_SEED)
        if self.run is not None:
            check_whole("run", self.run, 0, LAST)
        if of_path is not None:
            self._check_run(of_path.numbers)
            self.runs = of_path
        else:
            self.runs = self.load(self.group) if self.run is None else self.load_with(self.run)

    def _load_path(self) -> GroupRuns:
        """Return the runs at the path that was given as the group, and take their group's name.

        Raises:
            BadInput: There are no such runs, or they are from another source.
        """
        self.path = Path(self.group)
        self.as_in_the_book = False
        loaded = load(self.path)
        if loaded.source != self.source:
            raise BadInput(
                f"{self.path} has runs from {loaded.source!r}, and source={self.source!r}: "
                f"expected source={loaded.source!r}."
            )
        self.group = loaded.group
        return loaded

    def _check_run(self, numbers: Sequence[int]) -> None:
        """Raise `BadInput` unless the page's run is one of these."""
        if self.run is not None and self.run not in numbers:
            place = self.path or f"{self.group} from {self.source}"
            listed = ", ".join(in_ranges(numbers))
            expected = f"expected one of {listed}" if listed else "there are no runs of it"
            raise BadInput(f"No run {self.run} of {place}: {expected}.")

    def load(
        self, group: str, recipe: str | None = None, runs: Collection[int] | None = None
    ) -> GroupRuns:
        """Return the runs of a group from the page's source, as `runs.load` does.

        Of the page's group, these are the runs at its path, if it was given one.
        """
        if self.path is not None and group == self.group:
            return load(self.path, runs=runs)
        return load(group, self.source, recipe=recipe, runs=runs)

    def curves(
        self, run: int | None = None, group: str | None = None, recipe: str | None = None
    ) -> History:
        """Return the learning curves of a group's runs (the page's if None), as `load_curves`.

        Raises:
            BadInput: There are none, or their epochs are not passes through the training set.
        """
        if self.source == "ours":
            own = group in (None, self.group) and recipe is None
            loaded = self.runs if own else self.load(group or self.group, recipe)
            loaded.check_epochs()
        if self.path is not None and group in (None, self.group):
            return load_curves(self.path, run=run)
        return load_curves(group or self.group, self.source, run, recipe=recipe)

    def swap_maps(self, *, control: bool = False) -> DataFrame:
        """Return the interchange maps of the page's runs, or those of the controls.

        Those that are stored of other weights, or not at all, are measured now; `provenance` says
        so.
        """
        if self.maps is None:
            self.maps = MapsOfRuns(self.runs)
        return self.maps.load(control=control)

    def load_with(self, run: int) -> GroupRuns:
        """Return the page's runs if `run` is among them, else it and the first six of its recipe.

        Raises:
            BadInput: There is no such run.
        """
        if run in find(self.group, self.source):
            return self.load(self.group)
        alone = find(self.group, self.source, runs=[run])
        if not alone:
            self._check_run(self.numbers())
        recipe = alone[run].parent.name if self.source == "ours" else None
        together = find(self.group, self.source, recipe=recipe, runs=[*FIRST, run])
        return load(self.group, self.source, recipe=recipe, runs=[*together])

    def numbers(self) -> list[int]:
        """Return the numbers of all runs of the group that exist, by whichever recipe."""
        numbers: set[int] = set()
        for recipe in groups.RECIPES if self.source == "ours" else [None]:
            numbers.update(find(self.group, self.source, recipe=recipe, runs=range(LAST + 1)))
        return sorted(numbers)

    def counted(self, name: str, source: str) -> dict[str, bool] | None:
        """Return the runs that the ledger counts in a row, which it measures on all sums.

        It is None if the row is not of the page's group alone, or other weights are here.
        """
        values = self.of_ledger(name, source)
        return None if values is None else {run: bool(value) for run, value in values.items()}

    def of_ledger(self, name: str, source: str) -> dict[str, Any] | None:
        """Return the value of each run in a row of the ledger, which it measures on all sums.

        It is None if the row is not of the page's group alone, or other weights are here.
        """
        row = ledger.by_id(source).get(name)
        if row is None or row.groups != [self.group] or not row.runs or self.path is not None:
            return None
        if source == self.source and ledger.are_other_weights(self.runs):
            return None
        return dict(zip(row.keys, row.runs, strict=True))

    def has(self, group: str) -> bool:
        """Return False if the page is about the author's release, and this lacks the group."""
        return self.source != "author" or author.holds("weights", group)

    def provenance(self, beside: GroupRuns | None = None, history: History | None = None) -> str:
        """Return sentences on the page's weights, those `beside` them, and curves that it shows."""
        tested = tested_epochs(history) if history is not None else ""
        measured = self.maps.measured if self.maps is not None else []
        anew = measured_anew(measured) if measured else ""
        return provenance(self.runs, beside) + tested + anew
