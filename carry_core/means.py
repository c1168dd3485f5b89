"""Mean ablation: parts held at their average over sums, where the paper sets them to zero (beyond the paper)."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, fields
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from carry_core import measure, sums, tasks
from carry_core.edits import Ablation, Pair, recorder
from carry_core.errors import BadInput
from carry_core.measure import Cells
from carry_core.model import ModelConfig, Site, Transformer


@dataclass(frozen=True)
class Held:
    """Parts of the model that are the same whatever the sum: their average, position by position.

    Attributes:
        heads: (layer, head) pairs that bring their average output.
        patterns: (layer, head) pairs that look where they look on average; what they bring from there still varies.
            Not of the first layer, where `Forks` has looked already.
        mlps: layers whose MLP adds its average.
    """

    heads: Set[Pair] = frozenset()
    patterns: Set[Pair] = frozenset()
    mlps: Set[int] = frozenset()

    def __post_init__(self) -> None:
        for f in fields(self):
            object.__setattr__(self, f.name, frozenset(getattr(self, f.name)))
        if any(layer == 0 for layer, _ in self.patterns):
            raise BadInput(f"patterns={sorted(self.patterns)}: expected heads of later layers than the first.")

    def check(self, config: ModelConfig) -> None:
        """Make sure the model has every part that is named.

        Raises:
            BadInput: it does not.
        """
        Ablation(heads=self.heads | self.patterns, mlps=self.mlps).check(config)

    def at(self, layer: int) -> "Held":
        """What acts in one layer, between its heads and the next layer's patterns, as in `Forks`."""
        heads = {(l, head) for l, head in self.heads if l == layer}
        patterns = {(l, head) for l, head in self.patterns if l == layer + 1}
        return Held(heads, patterns, self.mlps & {layer})

    def steps(self, config: ModelConfig, average: Mapping[str, Tensor]) -> dict[int, tuple["Held", Site]]:
        """The layers that it changes, each with what it does there, as `Forks` takes it; `average` as from `averages`.

        All edits of one `Forks` need the same `average`: it is not a part of what they are told apart by.

        Raises:
            BadInput: the model has no such part.
        """
        self.check(config)
        parts = {layer: self.at(layer) for layer in range(config.layers)}
        return {layer: (part, part.site(config, average)) for layer, part in parts.items() if part != Held()}

    def names(self) -> list[str]:
        """The sites that are held, or a part of them."""
        found = {f"blocks.{layer}.attn.z" for layer, _ in self.heads}
        found |= {f"blocks.{layer}.attn.pattern" for layer, _ in self.patterns}
        return sorted(found | {f"blocks.{layer}.mlp_out" for layer in self.mlps})

    def site(self, config: ModelConfig, average: Mapping[str, Tensor]) -> Site:
        """As a site function for `config`'s model; `average` as from `averages`."""
        self.check(config)
        changes: dict[str, Callable[[Tensor], Tensor]] = {}
        for layer in range(config.layers):
            for kind, pairs, shape in (("z", self.heads, (-1, 1)), ("pattern", self.patterns, (-1, 1, 1))):
                chosen = torch.tensor([(layer, head) in pairs for head in range(config.heads)])
                if chosen.any():
                    name = f"blocks.{layer}.attn.{kind}"
                    changes[name] = partial(_where, chosen.view(shape), average[name])
            if layer in self.mlps:
                name = f"blocks.{layer}.mlp_out"
                changes[name] = partial(_where, torch.tensor(True), average[name])
        return lambda name, tensor: changes[name](tensor) if name in changes else tensor


def _where(chosen: Tensor, average: Tensor, x: Tensor) -> Tensor:
    return torch.where(chosen, average, x)


@torch.inference_mode()
def averages(
    model: Transformer,
    a: Int[Tensor, " sums"],
    b: Int[Tensor, " sums"],
    names: Sequence[str],
    n_digits: int | None = None,
) -> dict[str, Float[Tensor, "..."]]:
    """The named sites averaged over sums; of the last layer at the last `n_digits` answer positions only.

    All digits of the model if `n_digits` is None.
    """
    n_digits = model.config.width if n_digits is None else n_digits
    total: dict[str, Tensor] = {}
    for part_a, part_b in zip(a.split(measure.BATCH), b.split(measure.BATCH), strict=True):
        kept: dict[str, Tensor] = {}
        tokens = sums.encode(part_a, part_b, model.config.layout)
        model(tokens, recorder(kept, *names), model.config.layout.answer[-n_digits:])
        for name in names:
            total[name] = total.get(name, torch.zeros(())) + kept[name].double().sum(0)
    return {name: (x / len(a)).to(model.embed.weight.dtype) for name, x in total.items()}


def cells(
    model: Transformer,
    a: Int[Tensor, " sums"],
    b: Int[Tensor, " sums"],
    held: Sequence[Held],
    n_digits: int | None = None,
) -> list[Cells]:
    """Accuracies with each of the parts held at its average over the same sums; as `measure.cells` with zero.

    Args:
        model: the run.
        a: first numbers.
        b: second numbers.
        held: what to hold, one result each.
        n_digits: digits by which the sums are classed; the model's width if None.
    """
    n_digits = model.config.width if n_digits is None else n_digits
    for each in held:
        each.check(model.config)
    names = sorted({name for each in held for name in each.names()})
    average = averages(model, a, b, names, n_digits)
    edits = [each.steps(model.config, average) for each in held]
    return [measure.score(guess, a, b) for guess in measure.guesses(model, a, b, edits, n_digits)]


def forgets(found: Cells) -> bool:
    """Whether a model forgets ones that are needed more than it adds others: the lower mean accuracy tells.

    Cells at positions where no carried one can arrive do not count.
    """
    arrives = tasks.carry_arrives(found.accuracy.shape[1])
    elsewhere = ~arrives & arrives.any(0)
    return bool(found.accuracy[arrives].mean() < found.accuracy[elsewhere].mean())
