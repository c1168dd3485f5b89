"""Everything that the ledger reads off one run, from one pass over its sums.

The residual stream after the last attention is kept for all of them, at the answer's positions (0.8 GB for the
500,500 sums of three digits). Whatever is done to the final MLP is then cheap: taking it out, choosing its carry
neurons on all sums and ablating them, doing so again on draws of the paper's size, squashing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from carry_core import measure, tasks
from carry_core.edits import Ablation
from carry_core.kernels import applied
from carry_core.measure import Cells
from carry_core.model import Transformer, untouched
from carry_core.outcomes import FEWEST

DRAWS, DRAWN = 10, 20_000  # how often the dissection is drawn again; sums per class in a draw of the paper's
CHUNK = 2_048  # sums that pass through the last MLP at once: of each some hundred are in a draw


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
    edits = [part.steps(model.config) for part in parts]
    found = measure.guesses(model, a, b, edits, n_digits, see)
    cells = {part: measure.score(guess, a, b) for part, guess in zip(parts, found, strict=True)}
    cells[mlp] = measure.score(torch.cat(without_mlp), a, b)
    squashed = rest.squashing() if rest is not None and squash else {}
    if rest is None or not dissect:
        return Survey(cells, squashing=squashed)
    every, pairs = torch.arange(len(a)), []
    for seed in range(DRAWS):
        generator = torch.Generator().manual_seed(seed)
        pairs.append((rest.draw(generator), rest.draw(generator)))
    of_all, *of_draws = rest.dissect([(every, every), *pairs])
    return Survey(cells, of_all, tuple(of_draws), squashed)


class Rest:
    """A run from its last attention on, for many sums: `mid` is the stream there, at the answer's positions."""

    def __init__(self, model: Transformer, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"], n_digits: int) -> None:
        self.model, self.a, self.b, self.block = model, a, b, model.blocks[model.config.layers - 1]
        self.mid = torch.empty(len(a), n_digits, model.config.d_model)
        self.filled = 0
        self.task = tasks.classify(a, b, n_digits)
        self.members = [(self.task == task).nonzero().flatten() for task in range(len(tasks.patterns(n_digits)))]

    def keep(self, mid: Float[Tensor, "batch pos d_model"]) -> None:
        """Fill `mid`, batch after batch."""
        self.mid[self.filled : self.filled + len(mid)] = mid
        self.filled += len(mid)

    def draw(self, generator: torch.Generator) -> Int[Tensor, " sums"]:
        """`DRAWN` sums of every class, as indices in ascending order."""
        drawn = [m[torch.randint(len(m), (DRAWN,), generator=generator)] for m in self.members]
        return torch.cat(drawn).sort().values

    def dissect(self, pairs: Sequence[tuple[Int[Tensor, " _"], Int[Tensor, " _"]]]) -> list[Dissected]:
        """Choose the carry neurons on some sums and ablate them on others; both as sorted indices."""
        neurons = self.carry_neurons([chosen_on for chosen_on, _ in pairs])
        ablated_on = [which for _, which in pairs]
        return [
            Dissected(int(chosen.sum()), measure.score(guess, self.a[which], self.b[which]))
            for chosen, which, guess in zip(neurons, ablated_on, self.answers(~neurons, ablated_on), strict=True)
        ]

    def carry_neurons(self, chosen_on: Sequence[Int[Tensor, " _"]]) -> Bool[Tensor, "set neuron"]:
        """As `measure.carry_neurons`, on each set of sums, once `mid` is filled; in one pass, since sets overlap."""
        counts = torch.stack([torch.bincount(which, minlength=len(self.a)) for which in chosen_on])
        member = torch.stack([self.task == task for task in range(len(self.members))])
        total = torch.zeros(len(counts), len(member), self.model.config.d_ff, dtype=torch.float64)
        size = torch.zeros(len(counts), len(member), 1, dtype=torch.float64)
        for part in self._chunks():
            post = self.block.up(self.block.norm(self.mid[part, 0])).relu().double()
            weight = (counts[:, None, part] * member[:, part]).double()
            total += weight @ post
            size += weight.sum(-1, keepdim=True)
        return torch.stack([measure.more_active(mean) for mean in total / size])

    def answers(
        self, kept: Bool[Tensor, "set neuron"], asked: Sequence[Int[Tensor, " _"]]
    ) -> list[Int[Tensor, "_ pos"]]:
        """What the model answers with some neurons of the last MLP only, each set of them on sums of its own; int8.

        The neurons that all sets keep are computed once; `mid` must be filled.

        Args:
            kept: which neurons each set keeps.
            asked: the sums of each set, as sorted indices.
        """
        up, down, in_all = self.block.up, self.block.down, kept.all(0)
        in_some = kept.any(0) & ~in_all
        found = [torch.empty(len(which), self.mid.shape[1], dtype=torch.int8) for which in asked]
        added = [down.weight[:, in_some] * chosen for chosen in kept[:, in_some]]
        first = up.weight[in_all], up.bias[in_all]
        second = down.weight[:, in_all].contiguous()  # oneDNN is slow where neither rows nor columns are dense
        for part in self._chunks():
            mid = self.mid[part]
            x = self.block.norm(mid)
            shared = mid + applied(applied(x, *first).relu(), second, down.bias)
            post = applied(x, up.weight[in_some], up.bias[in_some]).relu()
            for guess, which, weight in zip(found, asked, added, strict=True):
                ends = torch.searchsorted(which, torch.tensor([part.start, part.stop]))
                here = which[slice(*ends)] - part.start
                resid = shared[here] + F.linear(post[here], weight)
                guess[slice(*ends)] = self.model.unembed(self.model.norm(resid)).argmax(-1)
        return found

    def squashing(self) -> dict[int, Float[Tensor, " pos"]]:
        """As `measure.squashing`, for every outcome with at least `FEWEST` sums a >= b."""
        outcome = self.a + self.b
        ordered = torch.where(self.a >= self.b, outcome, -1).argsort(stable=True)
        counts = torch.bincount(outcome[self.a >= self.b]).tolist()
        found = {}
        for total, which in enumerate(ordered[-sum(counts) :].split(counts)):
            if len(which) >= FEWEST:
                mid = self.mid[which]
                after = self.block.feed(mid, untouched)
                found[total] = measure.cosine_spread(after) / measure.cosine_spread(mid)
        return found

    def _chunks(self) -> list[slice]:
        return [slice(start, start + CHUNK) for start in range(0, len(self.a), CHUNK)]
