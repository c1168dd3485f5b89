"""The groups of runs that the paper trains, any other group by its name, and our recipes.

A name in the author's style is enough for a group, listed here or not:

    n2_s0.4_w0.5_dff256_h4      2 layers, 40% of the sums, weight decay 0.5, d_ff 256, 4 heads
    decoder_digits2_n1_s0.3_w0.0_p0.2      1 causal layer, two-digit sums, a dropout rate of 0.2

`FORM` has the whole grammar. A group, a recipe and a number identify a run.
"""

import difflib
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import NamedTuple

from carry_core.errors import BadInput
from carry_core.model import ModelConfig
from carry_core.sums import MAX_LISTED, n_sums

# The random longer sums of a padded group: it is primed with the first and tested on the others
# (App. H).
N_LONG = 20_000
# A run is tested after each of its first fifty epochs, then after every tenth.
TESTED_FIRST = 50
TESTED_EVERY = 10
DROPOUT = 0.1  # the paper's rate
DIGITS = 3  # the paper's sums, but for App. F


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
        dropout: The share of entries that dropout zeroes in training (App. A.1).
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
    dropout: float = DROPOUT
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
        if self.n_digits != DIGITS:
            parts.append(f"{self.n_digits} digits")
        if config.d_ff != ModelConfig.d_ff:
            parts.append(f"d_ff {config.d_ff}")
        if config.heads != ModelConfig.heads:
            parts.append("1 head" if config.heads == 1 else f"{config.heads} heads")
        if config.d_model != ModelConfig.d_model:
            parts.append(f"d_model {config.d_model}")
        if self.dropout != DROPOUT:
            parts.append(f"dropout {self.dropout}")
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


# ---- recipes


class MoreSnapshots(NamedTuple):
    """Runs of a group whose weights are kept at more epochs than the group's snapshots."""

    runs: Collection[int]  # by their numbers
    epochs: tuple[int, ...]  # by the paper's count


NO_MORE_SNAPSHOTS = MoreSnapshots((), ())


@dataclass(frozen=True)
class Recipe:
    """The length of a training, its learning rate and its batches; all else belongs to the group.

    Attributes:
        name: The recipe's name, which is also that of the folder with its runs.
        rate: The highest learning rate, from the end of `warmup` until it falls.
        warmup: Optimiser steps over which the learning rate rises linearly.
        steps: Optimiser steps of a whole training, rounded to whole epochs; None for the
            group's own epochs.
        batch: Sums in a batch; None for the group's own number.
        cooldown: The share of the steps, at the end, over which the learning rate falls linearly to
            zero.
        segments: The number of equal segments of a training that is too short to be counted in
            passes through the training set. They take the place of epochs, and the model is tested
            at snapshots and at the end only. None: an epoch is a pass.
        leads: False if its runs are loaded only where a group has no others, or by its name.
        limit: Epochs after which the user stops the training; None if it runs to its end. It
            moves no snapshot.
        more_snapshots: By group, the runs whose weights are kept at more epochs.
    """

    name: str
    rate: float
    warmup: int = 0
    steps: int | None = None
    batch: int | None = None
    cooldown: float = 0.0
    segments: int | None = None
    leads: bool = True
    limit: int | None = None
    more_snapshots: Mapping[str, MoreSnapshots] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.segments is not None and self.steps is None:
            raise ValueError(f"{self.name}: segments divide a number of steps, which is missing")

    def in_segments(self, group: Group) -> bool:
        """Return True if the group's epochs are segments of the training, not passes."""
        return self.segments is not None and group.parent is None

    def unit(self, group: Group) -> str:
        """Return what an epoch of the group's training is called: `epoch` or `segment`."""
        return "segment" if self.in_segments(group) else "epoch"

    def batch_size(self, group: Group) -> int:
        """Return the number of sums in a batch; the last batch of a pass is short."""
        return group.batch if self.batch is None else self.batch

    def steps_in_epoch(self, group: Group) -> int:
        """Return the optimiser steps of an epoch: of a pass, or of a segment of the training."""
        if self.steps is not None and self.segments is not None and self.in_segments(group):
            return max(1, round(self.steps / self.segments))
        return math.ceil(group.n_train / self.batch_size(group))

    def planned_epochs(self, group: Group) -> int:
        """Return the number of epochs in a whole training of the group."""
        if self.steps is None or group.parent is not None:
            return group.epochs
        return max(1, round(self.steps / self.steps_in_epoch(group)))

    def epochs(self, group: Group) -> int:
        """Return the number of epochs that the group is trained for: all, or the user's limit."""
        return self.planned_epochs(group) if self.limit is None else self.limit

    def rate_of_step(self, number: int, group: Group) -> float:
        """Return the learning rate of a step, counted from 0 in the whole training."""
        share = min(1.0, (number + 1) / max(1, self.warmup))
        if self.cooldown:
            total = self.planned_epochs(group) * self.steps_in_epoch(group)
            share = min(share, (total - number) / (self.cooldown * total))
        return self.rate * share

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

        They are the first fifty, every tenth, those of any run's snapshots, and the last; where
        epochs are segments of a short training, only the snapshots' and the last.
        """
        last = self.epochs(group)
        more = self.more_snapshots.get(group.name, NO_MORE_SNAPSHOTS)
        snapshots = self._own_epochs(group, {*group.snapshots, *more.epochs})
        earlier = {epoch for epoch in snapshots if epoch < last}
        if self.in_segments(group):
            return frozenset({*earlier, last})
        first = range(1, min(TESTED_FIRST, last) + 1)
        later = range(TESTED_EVERY, last + 1, TESTED_EVERY)
        return frozenset({*first, *later, *earlier, last})

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
    # For maps of many runs, lessons and first tries.
    "minute": Recipe(
        "minute",
        4e-3,
        warmup=300,
        steps=4000,
        batch=128,
        cooldown=0.8,
        segments=100,
        leads=False,
    ),
}


def find_recipe(name: str, group: Group, epochs: int | None = None) -> Recipe:
    """Return the recipe of that name, stopped after this many `epochs` (None: at its end)."""
    if name not in RECIPES:
        raise BadInput(f"Unknown recipe {name!r}: expected one of {', '.join(RECIPES)}.")
    recipe = RECIPES[name]
    planned = recipe.planned_epochs(group)
    if epochs is not None and epochs > planned:
        raise BadInput(
            f"--epochs {epochs}: {group.name} has {planned} by the recipe {name}; expected no more."
        )
    return replace(recipe, limit=epochs)


# ---- names of groups

FORM = (
    "[decoder_][digits2…4_ | padN_][primedM_ | finetunedM_]"
    "nLAYERS_sFRACTION_wDECAY[_dffD][_hHEADS][_dD_MODEL][_pDROPOUT]"
)
# Each part of a name is a word, and for all but one word a number.
PART = re.compile(
    r"(decoder|digits|pad|primed|finetuned|n|s|w|dff|h|d|p)([0-9.]*(?:e[-+]?[0-9]+)?)"
)
FRACTIONAL = ("s", "w", "p")  # the words of numbers that need not be whole
MAX_WHOLE = 99_999
MAX_LAYERS = 99
MAX_WIDTH = 12  # digits of padded sums: of longer ones, carry classes cannot be listed
MAX_FRACTION = 0.5  # the test set is as large as the training set
MAX_DECAY = 100.0
MAX_DROPOUT = 0.9
LARGE_BATCH = 8192  # sums in a batch of four digits
# Unprimed groups have the protocol of pad6_n2_s0.3_w0.2 (App. H).
UNPRIMED_EPOCHS = 2500
UNPRIMED_SNAPSHOTS = (500, 1000)
FINETUNED_EPOCHS = 50
FINETUNED_FROM = 500  # the epoch of the parent

Numbers = Mapping[str, float | int]  # the numbers in a name, by their words


@cache
def parsed(name: str) -> Group:
    """Return the group that a name describes by `FORM`.

    Raises:
        BadInput: The name does not parse, is not spelled as the group's own name is, or describes
            a group that cannot be trained.
    """
    numbers = _numbers(name)
    try:
        group = _described(numbers)
    except BadInput as error:
        raise BadInput(f"Group {name!r}: {error}") from error
    if group.name != name:
        raise BadInput(f"Group {name!r} is called {group.name}: expected that spelling.")
    return group


def _numbers(name: str) -> Numbers:
    """Return the numbers in a name; raise `BadInput` if it is not of the form."""
    numbers: dict[str, float | int] = {}
    for part in name.split("_"):
        match = PART.fullmatch(part)
        value = _value(*match.groups()) if match else None
        if match is None or value is None or match[1] in numbers:
            raise _unknown(name)
        numbers[match[1]] = value
    if not {"n", "s", "w"} <= numbers.keys():
        raise _unknown(name)
    return numbers


def _value(word: str, text: str) -> float | int | None:
    """Return the number after a word of a name; None if it is none, or not of the word's kind."""
    if word == "decoder":
        return None if text else 1
    try:
        value = float(text)
    except ValueError:
        return None
    if word in FRACTIONAL:
        return value
    return int(value) if text.isdigit() and value <= MAX_WHOLE else None


def _unknown(name: object) -> BadInput:
    """Return the error about a name that is not of the form; it has the nearest listed name."""
    nearest = difflib.get_close_matches(str(name), GROUPS, n=1, cutoff=0.0)[0]
    return BadInput(f"Unknown group {name!r}: expected a name such as {nearest}, by {FORM}.")


def _described(numbers: Numbers) -> Group:
    """Return the group with these numbers; raise `BadInput` if there can be none."""
    _check_ranges(numbers)
    n_digits = int(numbers.get("digits", DIGITS))
    config = ModelConfig(
        layers=int(numbers["n"]),
        width=int(numbers.get("pad", n_digits)),
        causal="decoder" in numbers,
        d_model=int(numbers.get("d", ModelConfig.d_model)),
        heads=int(numbers.get("h", ModelConfig.heads)),
        d_ff=int(numbers.get("dff", ModelConfig.d_ff)),
    )
    padded = config.width > n_digits
    group = Group(
        _name(numbers),
        config,
        fraction=float(numbers["s"]),
        decay=float(numbers["w"]),
        n_digits=n_digits,
        dropout=float(numbers.get("p", DROPOUT)),
        batch=LARGE_BATCH if n_digits == MAX_LISTED else Group.batch,
        primed=int(numbers.get("primed", numbers.get("finetuned", 0))),
        tracks_final_mlp=not (padded or config.causal),
    )
    if "finetuned" in numbers:
        parent = {word: number for word, number in numbers.items() if word != "finetuned"}
        return replace(group, epochs=FINETUNED_EPOCHS, parent=(_name(parent), FINETUNED_FROM))
    if padded and not group.primed:
        return replace(group, epochs=UNPRIMED_EPOCHS, snapshots=UNPRIMED_SNAPSHOTS)
    return group


def _name(numbers: Numbers) -> str:
    """Return the one name of the group with these numbers, without those that are defaults."""
    parts = ["decoder"] if "decoder" in numbers else []
    defaults = {
        "digits": DIGITS,
        "pad": DIGITS,
        "dff": ModelConfig.d_ff,
        "h": ModelConfig.heads,
        "d": ModelConfig.d_model,
        "p": DROPOUT,
    }
    order = ("digits", "pad", "primed", "finetuned", "n", "s", "w", "dff", "h", "d", "p")
    for word in order:
        if word in numbers and numbers[word] != defaults.get(word):
            parts.append(f"{word}{numbers[word]}")
    return "_".join(parts)


def _check_ranges(numbers: Numbers) -> None:
    """Raise `BadInput` if a number in a name is out of range, or two of them exclude each other."""
    n_digits = numbers.get("digits", DIGITS)
    size = n_sums(int(n_digits)) if 1 < n_digits <= MAX_LISTED else 0
    limits = {
        "digits": (2, MAX_LISTED, "digits, since all sums are enumerated"),
        "pad": (DIGITS, MAX_WIDTH, "digits"),
        "n": (1, MAX_LAYERS, "layers"),
        "w": (0, MAX_DECAY, "as weight decay"),
        "p": (0, MAX_DROPOUT, "as dropout rate"),
        "primed": (1, N_LONG - 1, "longer sums"),
        "finetuned": (1, N_LONG - 1, "longer sums"),
    }
    for word, (low, high, unit) in limits.items():
        if not low <= numbers.get(word, low) <= high:
            raise BadInput(f"{word}{numbers[word]}: expected {low} to {high} {unit}.")
    if not (1 / (2 * size) < numbers["s"] <= MAX_FRACTION):
        raise BadInput(
            f"s{numbers['s']}: expected a share of the {size:,} sums, of one sum or more, "
            f"up to {MAX_FRACTION}, since the test set is as large."
        )
    for word, other in (("digits", "pad"), ("primed", "finetuned")):
        if word in numbers and other in numbers:
            raise BadInput(f"expected either {word} or {other}, not both.")
    additions = {"primed", "finetuned"} & numbers.keys()
    if additions and numbers.get("pad", DIGITS) == DIGITS:
        raise BadInput(
            f"{additions.pop()} takes longer sums: expected a padded group, such as pad6."
        )


# ---- the paper's groups

DIGITS4 = "digits4_n2_s0.3_w0.2"
# Those that figures need most come first.
LISTED = (
    MAIN,
    "n1_s0.3_w0.2",
    "n3_s0.3_w0.2",
    "decoder_n2_s0.3_w0.2",
    "n2_s0.2_w1.0_dff512",
    "pad6_n2_s0.3_w0.2",
    "pad6_primed100_n2_s0.3_w0.2",
    "n1_s0.3_w0.0",
    "n1_s0.2_w1.0",
    "n2_s0.3_w0.0",
    "n2_s0.1_w0.2",
    "n2_s0.3_w0.2_dff1024",
    DIGITS4,
    "pad6_finetuned500_n2_s0.3_w0.2",
    "pad10_primed500_n2_s0.3_w0.2",
    "decoder_pad6_primed500_n2_s0.3_w0.2",
)
GROUPS = {name: replace(parsed(name), tracks_final_mlp=name in (MAIN, DIGITS4)) for name in LISTED}
GROUPS[DIGITS4] = replace(GROUPS[DIGITS4], n_runs=1)
# The author's release has one more group, which the paper does not mention.
RELEASED_ONLY = {
    "pad5_n2_s0.3_w0.2": Group("pad5_n2_s0.3_w0.2", ModelConfig(width=5), snapshots=(500,))
}


def find(name: str) -> Group:
    """Return the group of that name: one of the paper's, or the one that the name describes.

    Raises:
        BadInput: The name does not parse, or is another spelling of a group's name.
    """
    if not isinstance(name, str):
        raise _unknown(name)
    return (GROUPS | RELEASED_ONLY).get(name) or parsed(name)
