"""The groups of runs that the paper trains, and our recipes for training them.

Groups have the author's names. A group, a recipe and a number identify a run.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from carry_core.errors import BadInput
from carry_core.model import ModelConfig
from carry_core.sums import n_sums

# The random longer sums of a padded group: it is primed with the first and tested on the others
# (App. H).
N_LONG = 20_000
# A run is tested after each of its first fifty epochs, then after every tenth.
TESTED_FIRST = 50
TESTED_EVERY = 10


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their seeds (App. A, C, D, F, H).

    Attributes:
        name: The author's name of the group.
        config: The shape of the models. Sums are padded if `config.width` exceeds `n_digits`.
        fraction: The share of all sums that is in the training set, and again in the test
            set (the paper's s).
        decay: Weight decay (the paper's lambda).
        n_digits: Digits of the sums in the training set.
        batch: Sums in a batch.
        epochs: Epochs by the paper's protocol.
        n_runs: Number of runs.
        primed: Number of longer sums that are added to the training set, or that are the whole
            training set in finetuning.
        snapshots: Epochs whose weights are kept, besides the last one.
        parent: The group, and its epoch, from which finetuning starts.
        tracks_final_mlp: True if the learning curves include the accuracies per carry class
            without the final MLP (Fig. 5).
    """

    name: str
    config: ModelConfig
    fraction: float = 0.3
    decay: float = 0.2
    n_digits: int = 3
    batch: int = 1024
    epochs: int = 1000
    n_runs: int = 6
    primed: int = 0
    snapshots: tuple[int, ...] = ()
    parent: tuple[str, int] | None = None
    tracks_final_mlp: bool = False

    def __str__(self) -> str:
        """Return the group in words: "2 layers, 30% of the sums, weight decay 0.2"."""
        config = self.config
        parts = ["1 layer" if config.layers == 1 else f"{config.layers} layers"]
        if config.causal:
            parts.append("causal")
        if self.n_digits != 3:
            parts.append(f"{self.n_digits} digits")
        if config.d_ff != ModelConfig.d_ff:
            parts.append(f"d_ff {config.d_ff}")
        parts.append(f"{100 * self.fraction:.0f}% of the sums")
        parts.append(f"weight decay {self.decay}")
        if self.padded:
            parts.append(f"padded to {config.width} digits")
        longer_sums = f"{self.primed} {config.width}-digit sums"
        if self.parent is not None:
            parts.append(f"from epoch {self.parent[1]} finetuned on {longer_sums}")
        elif self.primed:
            parts.append(f"with {longer_sums}")
        return ", ".join(parts)

    @property
    def padded(self) -> bool:
        return self.config.width > self.n_digits

    @property
    def n_train(self) -> int:
        """Sums in the training set, with priming sums: 150,150 for three digits at s = 0.3."""
        if self.parent is not None:
            return self.primed
        return self.primed + round(self.fraction * n_sums(self.n_digits))

    @property
    def steps(self) -> int:
        """Optimiser steps in an epoch; the last batch is short."""
        return math.ceil(self.n_train / self.batch)


# ---- recipes


class MoreSnapshots(NamedTuple):
    """Runs of a group whose weights are kept at more epochs than the group's snapshots.

    Attributes:
        runs: Their numbers.
        epochs: These further epochs, by the paper's count.
    """

    runs: Collection[int]
    epochs: tuple[int, ...]


NO_MORE_SNAPSHOTS = MoreSnapshots((), ())


@dataclass(frozen=True)
class Recipe:
    """The length and the learning rate of a training; everything else belongs to the group.

    Attributes:
        name: The recipe's name, which is also that of the folder with its runs.
        rate: Learning rate, constant after `warmup` linear steps.
        warmup: Optimiser steps over which the learning rate rises.
        steps: Optimiser steps of a whole training, rounded to whole epochs; None for the
            group's own epochs.
        limit: Epochs after which the user stops the training; None if it runs to its end. It
            moves no snapshot.
        more_snapshots: By group, the runs whose weights are kept at more epochs.
    """

    name: str
    rate: float
    warmup: int = 0
    steps: int | None = None
    limit: int | None = None
    more_snapshots: Mapping[str, MoreSnapshots] = field(default_factory=dict)

    def planned_epochs(self, group: Group) -> int:
        """Return the number of epochs in a whole training of the group."""
        if self.steps is None or group.parent is not None:
            return group.epochs
        return max(1, round(self.steps / group.steps))

    def epochs(self, group: Group) -> int:
        """Return the number of epochs that the group is trained for: all, or the user's limit."""
        return self.planned_epochs(group) if self.limit is None else self.limit

    def snapshots(self, group: Group, run: int) -> dict[int, int]:
        """Return the epochs whose weights are kept, with the paper's epoch that each stands for.

        The two lie at the same share of a whole training.
        """
        more = self.more_snapshots.get(group.name, NO_MORE_SNAPSHOTS)
        paper_epochs = {*group.snapshots}
        if run in more.runs:
            paper_epochs.update(more.epochs)
        return self._own_epochs(group, paper_epochs)

    def tested(self, group: Group) -> frozenset[int]:
        """Return the epochs after which the runs of a group are tested, the same for all of them.

        They are the first fifty, every tenth, those of any run's snapshots, and the last.
        """
        last = self.epochs(group)
        more = self.more_snapshots.get(group.name, NO_MORE_SNAPSHOTS)
        first = range(1, min(TESTED_FIRST, last) + 1)
        later = range(TESTED_EVERY, last + 1, TESTED_EVERY)
        snapshots = self._own_epochs(group, {*group.snapshots, *more.epochs})
        return frozenset({*first, *later, *snapshots, last})

    def _own_epochs(self, group: Group, paper_epochs: Collection[int]) -> dict[int, int]:
        """Return this recipe's epochs at the same share of a whole training, with the paper's."""
        share = self.planned_epochs(group) / group.epochs
        return {max(1, round(share * epoch)): epoch for epoch in sorted(paper_epochs)}


MAIN = "n2_s0.3_w0.2"
# In `quick` these are epochs 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30 and 45 of 60: most of what
# happens, happens early.
ON_THE_WAY = (17, 33, 50, 67, 83, 100, 133, 167, 250, 333, 500, 750)
RECIPES = {
    "paper": Recipe("paper", 1.4e-4),
    "quick": Recipe(
        "quick",
        1e-3,
        warmup=300,
        steps=8820,
        more_snapshots={MAIN: MoreSnapshots(runs=range(4), epochs=ON_THE_WAY)},
    ),
}


def find_recipe(name: str, group: Group, epochs: int | None = None) -> Recipe:
    """Return the recipe of that name, stopped after this many `epochs` (None: at its end).

    Raises:
        BadInput: There is no such recipe, it has fewer epochs, or the group is not in the
            paper.
    """
    if name not in RECIPES:
        raise BadInput(f"Unknown recipe {name!r}: expected one of {', '.join(RECIPES)}.")
    if group.name not in GROUPS:
        raise BadInput(f"{group.name} is not in the paper, so there is no protocol to train it by.")
    recipe = RECIPES[name]
    planned = recipe.planned_epochs(group)
    if epochs is not None and epochs > planned:
        raise BadInput(
            f"--epochs {epochs}: {group.name} has {planned} by the recipe {name}; expected no more."
        )
    return replace(recipe, limit=epochs)


# ---- groups

_PAD6 = ModelConfig(width=6)
# The groups that figures need most come first.
_LISTED = (
    Group(MAIN, ModelConfig(), tracks_final_mlp=True),
    Group("n1_s0.3_w0.2", ModelConfig(layers=1)),
    Group("n3_s0.3_w0.2", ModelConfig(layers=3)),
    Group("decoder_n2_s0.3_w0.2", ModelConfig(causal=True)),
    Group("n2_s0.2_w1.0_dff512", ModelConfig(d_ff=512), fraction=0.2, decay=1.0),
    Group("pad6_n2_s0.3_w0.2", _PAD6, epochs=2500, snapshots=(500, 1000)),
    Group("pad6_primed100_n2_s0.3_w0.2", _PAD6, primed=100),
    Group("n1_s0.3_w0.0", ModelConfig(layers=1), decay=0.0),
    Group("n1_s0.2_w1.0", ModelConfig(layers=1), fraction=0.2, decay=1.0),
    Group("n2_s0.3_w0.0", ModelConfig(), decay=0.0),
    Group("n2_s0.1_w0.2", ModelConfig(), fraction=0.1),
    Group("n2_s0.3_w0.2_dff1024", ModelConfig(d_ff=1024)),
    Group(
        "digits4_n2_s0.3_w0.2",
        ModelConfig(width=4),
        n_digits=4,
        batch=8192,
        n_runs=1,
        tracks_final_mlp=True,
    ),
    Group(
        "pad6_finetuned500_n2_s0.3_w0.2",
        _PAD6,
        primed=500,
        epochs=50,
        parent=("pad6_n2_s0.3_w0.2", 500),
    ),
    Group("pad10_primed500_n2_s0.3_w0.2", ModelConfig(width=10), primed=500),
    Group("decoder_pad6_primed500_n2_s0.3_w0.2", ModelConfig(width=6, causal=True), primed=500),
)
GROUPS = {group.name: group for group in _LISTED}
# The author's release has one more group, which the paper does not mention.
RELEASED_ONLY = {"pad5_n2_s0.3_w0.2": Group("pad5_n2_s0.3_w0.2", ModelConfig(width=5))}


def find(name: str) -> Group:
    """Return the group of that name.

    Raises:
        BadInput: There is no such group.
    """
    group = (GROUPS | RELEASED_ONLY).get(name) if isinstance(name, str) else None
    if group is None:
        raise BadInput(f"Unknown group {name!r}: expected one of {', '.join(GROUPS)}.")
    return group
