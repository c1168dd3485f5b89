"""What pages about longer sums draw class by class: attention and the residual stream (Fig. 18, 19 and 21 to 25)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from carry_core import geometry, groups, longer, tasks
from carry_core.at_hand import AtHand
from carry_core.errors import BadInput
from carry_core.geometry import Plane
from carry_core.model import Transformer
from carry_core.runs import Runs


@dataclass(frozen=True)
class ByClass:
    """What a page draws class by class: one run of each source (Fig. 18, 19 and 21 to 25).

    Attributes:
        shown: the runs that are there.
        chosen: the run of each source.
        wanted: the classes.
        n_examples: how many sums: of each class for attention, in all for the residual stream.
        seed: of the draw.
    """

    shown: AtHand
    chosen: Mapping[str, int]
    wanted: Sequence[str]
    n_examples: int
    seed: int

    @property
    def introduced(self) -> str:
        """Where the weights come from and which run of each source is shown, as sentences."""
        whose = {"author": "the author’s", "ours": "our"}
        told = " and ".join(f"{whose[source]} run {run}" for source, run in self.chosen.items())
        return "\n\n".join([self.shown.told, *([f"Shown is **{told}**."] if told else [])])

    @property
    def width(self) -> int:
        """How many digits the sums have."""
        return len(self.wanted[0])

    def balanced(self, n_examples: int) -> tuple[Int[Tensor, " sums"], Int[Tensor, " sums"]]:
        """About so many sums in all, as many of every class, whichever are drawn."""
        return longer.balanced(self.width, n_examples, self.seed)

    def model(self, loaded: Runs) -> Transformer:
        """The run that is shown of a source, at the page's epoch."""
        return loaded.model(self.chosen[loaded.source], self.shown.epoch)

    def attention(self, loaded: Runs) -> Float[Tensor, "task layer head query key"]:
        """Its mean attention for each class."""
        return longer.class_attention(self.model(loaded), self.wanted, self.n_examples, self.seed)

    def every(self, at_most: int) -> "ByClass":
        """The same for every class that there is, with no more sums of each."""
        return replace(self, wanted=tasks.patterns(self.width), n_examples=min(at_most, self.n_examples))

    def journey(self, loaded: Runs) -> list[Plane]:
        """Its residual stream at the answer positions, layer by layer."""
        model = self.model(loaded)
        generator = torch.Generator().manual_seed(self.seed)
        a, b = tasks.draw_classes(self.wanted, self.n_examples // len(self.wanted), generator)
        return geometry.journey(model, a, b, model.config.width, longer.answer_columns(model))


def choose(shown: AtHand, group: str, wanted: Any, n_examples: int, seed: int, *, in_all: bool = False) -> ByClass:
    """Choose classes, as `longer.classes`, and runs, as `longer.chosen_runs`.

    Args:
        shown: the runs that are there.
        group: whose they are.
        wanted: the classes.
        n_examples: how many sums.
        seed: of the draw.
        in_all: `n_examples` is of all classes together, not of each.

    Raises:
        BadInput: no such class, fewer sums than classes, or a group without a layer before the last.
    """
    config = groups.find(group).config
    if config.layers < 2:
        raise BadInput(f"{group} has {config.layers} layer: expected a group with 2 layers or more.")
    found = longer.classes(config.width, wanted)
    if in_all and n_examples < len(found):
        raise BadInput(f"n_examples={n_examples}: expected {len(found)} or more, one for each of the classes.")
    return ByClass(shown, longer.chosen_runs(shown), found, n_examples, seed)
