"""The two recipes that we train the paper's groups with, and how far runs got by theirs."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from carry_core import groups
from carry_core.errors import BadInput
from carry_core.groups import MAIN, Group
from carry_core.runs import Runs

# A run is tested after each of its first fifty epochs, then after every tenth.
TESTED_FIRST, TESTED_EVERY = 50, 10


@dataclass(frozen=True)
class Recipe:
    """How long and how fast a group is trained; everything else is the group's."""

    name: str
    rate: float  # learning rate, constant after `warmup` linear steps
    warmup: int = 0
    steps: int | None = None  # in all, rounded to whole epochs; None for the group's own epochs
    limit: int | None = None  # epochs that the user asks for, in place of either; moves no snapshot
    # of a group, runs whose weights are kept at more epochs than the group's, in the paper's epochs
    followed: Mapping[str, tuple[Collection[int], tuple[int, ...]]] = field(default_factory=dict)

    def epochs(self, group: Group) -> int:
        return group.planned_epochs(self.steps) if self.limit is None else self.limit

    def snapshots(self, group: Group, run: int) -> dict[int, int]:
        """Epochs whose weights are kept, and the paper's epochs that they stand for: the same share of the whole."""
        runs, more = self.followed.get(group.name, ((), ()))
        return self._own(group, {*group.snapshots, *(more if run in runs else ())})

    def tested(self, group: Group) -> frozenset[int]:
        """Epochs after which the test sums are asked, the same for all runs of a group.

        The first fifty and every tenth, those of any run's snapshots, and the last.
        """
        last, (_, followed) = self.epochs(group), self.followed.get(group.name, ((), ()))
        snapshots = self._own(group, {*group.snapshots, *followed})
        first = range(1, min(TESTED_FIRST, last) + 1)
        later = range(TESTED_EVERY, last + 1, TESTED_EVERY)
        return frozenset({*first, *later, *snapshots, last})

    def _own(self, group: Group, papers: Collection[int]) -> dict[int, int]:
        """Epochs of this recipe at the same share of the whole as the paper's, with these."""
        share = replace(self, limit=None).epochs(group) / group.epochs
        return {max(1, round(share * epoch)): epoch for epoch in sorted(papers)}


# 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30 and 45 of the 60 epochs of `quick`: most of what happens is at
# the beginning
ON_THE_WAY = (17, 33, 50, 67, 83, 100, 133, 167, 250, 333, 500, 750)
BY_NAME = {
    "paper": Recipe("paper", 1.4e-4),
    "quick": Recipe(
        "quick",
        1e-3,
        warmup=300,
        steps=groups.RECIPES["quick"],
        followed={MAIN: (range(4), ON_THE_WAY)},
    ),
}


def chosen(name: str, group: Group, epochs: int | None = None) -> Recipe:
    """A recipe by its name, stopped after so many epochs; BadInput if it has fewer, or none for that group."""
    if name not in BY_NAME:
        raise BadInput(f"Unknown recipe {name!r}: expected one of {', '.join(BY_NAME)}.")
    if group.name not in groups.GROUPS:
        raise BadInput(f"{group.name} is not in the paper, so there is no protocol to train it by.")
    recipe, planned = BY_NAME[name], BY_NAME[name].epochs(group)
    if epochs is not None and epochs > planned:
        raise BadInput(
            f"--epochs {epochs}: {group.name} has {planned} by the recipe {name}; expected no more."
        )
    return replace(recipe, limit=epochs)


def run_numbers(text: str | None, group: Group) -> list[int]:
    """Numbers of runs such as `0-5` or `0,2`, below 1000; those of the group if None. BadInput for any other text."""
    if text is None:
        return list(range(group.n_runs))
    spans = [re.fullmatch(r"([0-9]{1,3})(?:-([0-9]{1,3}))?", part) for part in text.split(",")]
    numbers = [range(int(span[1]), int(span[2] or span[1]) + 1) for span in spans if span]
    if not all(spans) or not all(numbers):
        raise BadInput(
            f"--runs {text}: expected run numbers such as 0-5 or 0,2,4, lower ones first, below 1000."
        )
    return sorted({number for span in numbers for number in span})


def planned_epochs(loaded: Runs) -> int:
    """Epochs of the whole recipe of some runs, of which they may have had a part only."""
    group = groups.find(loaded.group)
    return (
        group.epochs
        if loaded.source == "author"
        else BY_NAME[loaded.record["recipe"]].epochs(group)
    )


def own_epoch(loaded: Runs, epoch: int | None) -> int:
    """The epoch of some runs that stands for the paper's: the same share of the whole; the last where none is kept."""
    if epoch is None or epoch not in loaded.snapshots:
        return int(loaded.record["epochs"])
    return max(1, round(epoch * planned_epochs(loaded) / groups.find(loaded.group).epochs))


def paper_epochs(loaded: Runs) -> dict[int | None, int]:
    """The epochs at which some runs' weights are kept, None for the last, and the paper's that they stand for."""
    last = round(
        groups.find(loaded.group).epochs * loaded.record["epochs"] / planned_epochs(loaded)
    )
    return {epoch: last if epoch is None else epoch for epoch in (*loaded.snapshots, None)}


def stands_in(loaded: Runs) -> bool:
    """Whether runs stand in for those trained as the paper's: by another recipe, or not to its end."""
    as_in_paper = (loaded.record["recipe"], loaded.record["epochs"]) == (
        "paper",
        groups.find(loaded.group).epochs,
    )
    return loaded.source == "ours" and not as_in_paper


def training(loaded: Runs) -> str:
    """By which recipe ours were trained and how far they got: `recipe “paper”, 100 of 1000 epochs`."""
    recipe, epochs = loaded.record["recipe"], loaded.record["epochs"]
    return f"recipe “{recipe}”, {reached(loaded.group, recipe, epochs)} epochs"


def reached(name: str, recipe: str, epochs: int) -> str:
    """How far a training came, in epochs: `60`, or `1 of 5` if its recipe has more."""
    planned = BY_NAME[recipe].epochs(groups.find(name))
    return f"{epochs}" if epochs >= planned else f"{epochs} of {planned}"
