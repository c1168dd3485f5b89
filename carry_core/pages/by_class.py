"""What pages about longer sums draw class by class: attention and the residual stream (Fig. 18, 19 and 21 to 25)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from carry_core import carries, groups, measure
from carry_core.errors import BadInput
from carry_core.findings import geometry, lengths
from carry_core.findings.geometry import Plane
from carry_core.model import Transformer
from carry_core.pages import over_runs
from carry_core.pages.at_hand import AtHand
from carry_core.sums import Layout


@dataclass(frozen=True)
class ByClass:
    """One run, the classes of sums for which a page draws it, and how many sums it draws.

    Attributes:
        shown: the group's runs.
        run: the one that is drawn.
        wanted: the classes.
        n_examples: how many sums: of each class for attention, in all for the residual stream.
        seed: of the draw.
    """

    shown: AtHand
    run: int
    wanted: Sequence[str]
    n_examples: int
    seed: int

    @property
    def introduced(self) -> str:
        """Where the weights come from and which run is drawn, as sentences."""
        whose = "the author’s" if self.shown.runs.source == "author" else "our"
        return f"{self.shown.told}\n\nShown is **{whose} run {self.run}**."

    @property
    def names(self) -> list[str]:
        """The classes as they are titled."""
        return [carries.paper_name(pattern) for pattern in self.wanted]

    @property
    def layout(self) -> Layout:
        """Which tokens the sums have."""
        return self.shown.runs.config.layout

    @property
    def width(self) -> int:
        """How many digits the sums have."""
        return len(self.wanted[0])

    @property
    def model(self) -> Transformer:
        """The run that is drawn, at the page's epoch."""
        return self.shown.runs.model(self.run, self.shown.epoch)

    def balanced(self, n_examples: int) -> tuple[Int[Tensor, " sums"], Int[Tensor, " sums"]]:
        """About so many sums in all, as many of every class, whichever are drawn."""
        return lengths.balanced(self.width, n_examples, self.seed)

    def attention(self) -> Float[Tensor, "task layer head query key"]:
        """Mean attention for each class."""
        a, b = carries.sample_classes(self.wanted, self.n_examples, torch.Generator().manual_seed(self.seed))
        pairs = zip(a.split(self.n_examples), b.split(self.n_examples), strict=True)
        return torch.stack([measure.attention(self.model, *pair) for pair in pairs])

    def every(self, at_most: int) -> "ByClass":
        """The same for every class that there is, with no more sums of each."""
        return replace(self, wanted=carries.patterns(self.width), n_examples=min(at_most, self.n_examples))

    def journey(self) -> list[Plane]:
        """The residual stream at the answer positions, layer by layer."""
        model, generator = self.model, torch.Generator().manual_seed(self.seed)
        a, b = carries.sample_classes(self.wanted, self.n_examples // len(self.wanted), generator)
        return geometry.journey(model, a, b, model.config.width, lengths.answer_columns(model))


def choose(shown: AtHand, wanted: Any, n_examples: int, seed: int, *, in_all: bool = False) -> ByClass:
    """Choose classes, as `carries.choose`, and a run, as `over_runs.chosen_runs`.

    Args:
        shown: the group's runs.
        wanted: the classes.
        n_examples: how many sums.
        seed: of the draw.
        in_all: `n_examples` is of all classes together, not of each.

    Raises:
        BadInput: no such class, fewer sums than classes, or a group without a layer before the last.
    """
    group, config = shown.runs.group, groups.find(shown.runs.group).config
    if config.layers < 2:
        raise BadInput(f"{group} has {config.layers} layer: expected a group with 2 layers or more.")
    found = carries.choose(config.width, wanted)
    if in_all and n_examples < len(found):
        raise BadInput(f"n_examples={n_examples}: expected {len(found)} or more, one for each of the classes.")
    (run,) = over_runs.chosen_runs(shown).values()
    return ByClass(shown, run, found, n_examples, seed)
