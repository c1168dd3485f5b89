"""Everything that the ledger reads off one run, from one pass over its sums.

The residual stream after the last attention is kept for all of them, at the answer's positions (0.8 GB for the
500,500 sums of three digits). Whatever is done to the final MLP is then cheap: taking it out, choosing its carry
neurons on all sums and ablating them, doing so again on draws of the paper's size, squashing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from carry_core import measure, tasks
from carry_core.edits import INTACT, Ablation, recorder
from carry_core.measure import Cells
from carry_core.model import Transformer
from carry_core.outcomes import FEWEST

DRAWS, DRAWN = 10, 20_000  # how often the dissection is drawn again; sums per class in a draw of the paper's


@dataclass(frozen=True)
class Dissected:
    """How many carry neurons there are (Sec. 5), and what the model gets right without them."""

    neurons: int
    cells: Cells


@dataclass(frozen=True)
class Survey:
    """What was measured on one run.

    Attributes:
        cells: accuracies under each ablation; the final MLP is always among them, since that costs next to nothing.
        dissected: neurons chosen on all sums and ablated on all sums.
        draws: the same, chosen on one random draw and ablated on another, `DRAWS` times.
        squashing: `measure.squashing` of each outcome that has enough sums.
    """

    cells: Mapping[Ablation, Cells]
    dissected: Dissected | None = None
    draws: tuple[Dissected, ...] = ()
    squashing: Mapping[int, Float[Tensor, " pos"]] = field(default_factory=dict)


@torch.inference_mode()
def survey(
    model: Transformer,
    a: Int[Tensor, " sums"],
    b: Int[Tensor, " sums"],
    ablations: Iterable[Ablation] = (),
    n_digits: int | None = None,
    *,
    dissect: bool = False,
    squash: bool = False,
) -> Survey:
    """Survey one run.

    Args:
        model: the run.
        a: first numbers; of every class there must be some.
        b: second numbers.
        ablations: what to take out besides the final MLP; `INTACT` for nothing.
        n_digits: digits by which the sums are classed; the model's width if None.
        dissect: whether to dissect the final MLP.
        squash: whether to measure squashing; the sums must then be all there are.
    """
    n_digits = model.config.width if n_digits is None else n_digits
    rest = Rest(model, a, b, n_digits) if dissect or squash else None
    mlp = measure.final_mlp(model)
    without_mlp: list[Tensor] = []

    def see(mid: Tensor) -> None:
        without_mlp.append(model.unembed(model.norm(mid)).argmax(-1))
        if rest is not None:
            rest.keep(mid)

    parts = [ablation for ablation in ablations if ablation != mlp]
    edits = [(part.first_layer(model.config), part.site(model.config)) for part in parts]
    found = measure.guesses(model, a, b, edits, n_digits, see)
    cells = {part: measure.score(guess, a, b) for part, guess in zip(parts, found, strict=True)}
    cells[mlp] = measure.score(torch.cat(without_mlp), a, b)
    if rest is None or not dissect:
        return Survey(cells, squashing=rest.squashing() if rest is not None else {})
    draws = []
    for seed in range(DRAWS):
        generator = torch.Generator().manual_seed(seed)
        draws.append(rest.dissect(rest.draw(generator), rest.draw(generator)))
    return Survey(cells, rest.dissect(), tuple(draws), rest.squashing() if squash else {})


class Rest:
    """A run from its last attention on, for many sums: `mid` is the stream there, at the answer's positions."""

    def __init__(self, model: Transformer, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"], n_digits: int) -> None:
        self.model, self.a, self.b, self.last = model, a, b, model.config.layers - 1
        self.mid = torch.empty(len(a), n_digits, model.config.d_model)
        self.filled = 0
        self.task = tasks.classify(a, b, n_digits)
        self.members = [(self.task == task).nonzero().flatten() for task in range(len(tasks.patterns(n_digits)))]

    def keep(self, mid: Float[Tensor, "batch pos d_model"]) -> None:
        """Fill `mid`, batch after batch."""
        self.mid[self.filled : self.filled + len(mid)] = mid
        self.filled += len(mid)

    def draw(self, generator: torch.Generator) -> Int[Tensor, " sums"]:
        """`DRAWN` sums of every class, as indices."""
        return torch.cat([m[torch.randint(len(m), (DRAWN,), generator=generator)] for m in self.members])

    def finish(self, mid: Float[Tensor, "sums pos d_model"], ablation: Ablation, kept: dict[str, Tensor]) -> Tensor:
        """The stream after the last MLP, from the one before it; records `mlp.post` of the last block in `kept`."""
        edit, record = ablation.site(self.model.config), recorder(kept, f"blocks.{self.last}.mlp.post")
        return self.model.blocks[self.last].feed(mid, lambda name, tensor: record(name, edit(name, tensor)))

    def cells(self, ablation: Ablation, which: Int[Tensor, " sums"] | None = None) -> Cells:
        """Accuracies under an ablation of the last MLP."""
        which = torch.arange(len(self.a)) if which is None else which
        found = []
        for part in which.split(measure.BATCH):
            resid = self.finish(self.mid[part], ablation, {})
            found.append(self.model.unembed(self.model.norm(resid)).argmax(-1).to(torch.int8))
        return measure.score(torch.cat(found), self.a[which], self.b[which])

    def carry_neurons(self, which: Int[Tensor, " sums"] | None = None) -> Bool[Tensor, " neuron"]:
        """As `measure.carry_neurons`."""
        which = torch.arange(len(self.a)) if which is None else which
        total = torch.zeros(len(self.members), self.model.config.d_ff, dtype=torch.float64)
        for part in which.split(measure.BATCH):
            kept: dict[str, Tensor] = {}
            self.finish(self.mid[part, :1], INTACT, kept)
            total.index_add_(0, self.task[part], kept[f"blocks.{self.last}.mlp.post"][:, 0].double())
        return measure.more_active(total / torch.bincount(self.task[which]).unsqueeze(-1))

    def dissect(
        self, chosen_on: Int[Tensor, " sums"] | None = None, ablated_on: Int[Tensor, " sums"] | None = None
    ) -> Dissected:
        """Choose the carry neurons on some sums and ablate them on others; on all if None."""
        neurons = self.carry_neurons(chosen_on)
        return Dissected(int(neurons.sum()), self.cells(measure.dissection(neurons, self.last), ablated_on))

    def squashing(self) -> dict[int, Float[Tensor, " pos"]]:
        """As `measure.squashing`, for every outcome with at least `FEWEST` sums a >= b."""
        outcome = self.a + self.b
        ordered = torch.where(self.a >= self.b, outcome, -1).argsort(stable=True)
        counts = torch.bincount(outcome[self.a >= self.b]).tolist()
        found = {}
        for total, which in enumerate(ordered[-sum(counts) :].split(counts)):
            if len(which) >= FEWEST:
                mid = self.mid[which]
                after = self.finish(mid, INTACT, {})
                found[total] = measure.cosine_spread(after) / measure.cosine_spread(mid)
        return found
