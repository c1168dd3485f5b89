"""What the paper measures on a trained model: accuracies per class and position, attention, dissection, squashing."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from carry_core import sums, tasks
from carry_core.edits import INTACT, Ablation, recorder
from carry_core.errors import BadInput
from carry_core.forks import Edit, Forks
from carry_core.model import ModelConfig, Transformer
from carry_core.sums import Layout

BATCH = 256  # sums in a pass: what a layer needs then stays in the processor's cache


@dataclass(frozen=True)
class Cells:
    """Accuracies of one model under one ablation (Tables 1, 3, 4, 5).

    Attributes:
        accuracy: share of right digits, per class and answer position.
        corrected: the same after adding one where a carry arrives and subtracting one elsewhere, each position
            by itself and modulo ten.
        whole: share of answers that are right at every position, over all sums that were given.
    """

    accuracy: Float[Tensor, "task pos"]
    corrected: Float[Tensor, "task pos"]
    whole: float


def cells(
    model: Transformer,
    a: Int[Tensor, " sums"],
    b: Int[Tensor, " sums"],
    ablations: Sequence[Ablation] = (INTACT,),
    n_digits: int | None = None,
) -> list[Cells]:
    """Accuracies under each ablation; what ablations have in common is computed once.

    Args:
        a, b: the sums' two numbers.
        ablations: what to take out, one result each.
        n_digits: digits by which the sums are classed; the model's width if None.
    """
    n_digits = model.config.width if n_digits is None else n_digits
    edits = [ablation.steps(model.config) for ablation in ablations]
    return [score(guess, a, b) for guess in guesses(model, a, b, edits, n_digits)]


@torch.inference_mode()
def guesses(
    model: Transformer,
    a: Int[Tensor, " sums"],
    b: Int[Tensor, " sums"],
    edits: Sequence[Edit],
    n_digits: int,
    last_mid: Callable[[Tensor], object] | None = None,
) -> list[Int[Tensor, "sums pos"]]:
    """The tokens that the model answers with under each edit, greedily, at the last `n_digits` digits; int8.

    Args:
        a, b: the sums' two numbers.
        edits: as `Forks` takes them.
        n_digits: how many digits of the answer to read.
        last_mid: as `Forks` takes it.
    """
    layout = model.config.layout
    forks = Forks(model, edits, layout.answer[-n_digits:], last_mid)
    found = [torch.empty(len(a), n_digits, dtype=torch.int8) for _ in edits]
    for start in range(0, len(a), BATCH):
        part = slice(start, start + BATCH)
        tokens = sums.encode(a[part], b[part], layout)
        for i, logits in enumerate(forks(tokens)):
            found[i][part] = logits.argmax(-1)
    return found


def score(guess: Int[Tensor, "sums pos"], a: Int[Tensor, " sums"], b: Int[Tensor, " sums"]) -> Cells:
    """Accuracies per class of what a model answered, the classes by as many digits as were read."""
    n_digits = guess.shape[1]
    task, answer = tasks.classify(a, b, n_digits), sums.digits(a + b, n_digits)
    arrives = tasks.carry_arrives(n_digits)
    shift = torch.where(arrives[task], 1, -1)
    hit, corrected = guess == answer, (guess + shift) % 10 == answer
    count = torch.bincount(task, minlength=len(arrives)).unsqueeze(-1)
    total = torch.zeros(2, *arrives.shape).index_add_(1, task, torch.stack([hit, corrected]).float())
    return Cells(total[0] / count, total[1] / count, hit.all(1).double().mean().item())


def last_heads(model: Transformer | ModelConfig, layers: int = 1) -> list[Ablation]:
    """The ablation of each head of the last layer, or of so many last layers.

    Raises:
        BadInput: the model has fewer.
    """
    config = model.config if isinstance(model, Transformer) else model
    n = config.layers
    if layers > n:
        raise BadInput(f"Expected a model with at least {layers} layers, this one has {n}: choose another group.")
    every = [(layer, head) for layer in range(n - layers, n) for head in range(config.heads)]
    return [Ablation(heads=frozenset({pair})) for pair in every]


def head_pairs(config: ModelConfig) -> list[Ablation]:
    """The whole attention of the layer before the last, together with each head of the last layer (App. C.3).

    Raises:
        BadInput: as `last_heads`, for two layers.
    """
    heads = [part.heads for part in last_heads(config, 2)]
    before = frozenset().union(*heads[: config.heads])
    return [Ablation(heads=before | head) for head in heads[config.heads :]]


def final_mlp(model: Transformer | ModelConfig) -> Ablation:
    """The ablation of the last block's MLP."""
    config = model.config if isinstance(model, Transformer) else model
    return Ablation(mlps=frozenset({config.layers - 1}))


def decision_head(heads: Sequence[Cells]) -> int:
    """The last layer's head whose ablation costs more whole-answer accuracy (Sec. 4); `heads` as `last_heads`."""
    return min(range(len(heads)), key=lambda head: heads[head].whole)


@dataclass(frozen=True)
class LastLayer:
    """What becomes of the accuracies when a part of the last block is taken out (Tab. 1, 4 and 5, Sec. 4 and 5).

    Attributes:
        intact: with nothing taken out.
        heads: without each head.
        mlp: without the MLP.
        neurons: the MLP's carry neurons, if they were asked for.
        dissected: without these.
    """

    intact: Cells
    heads: tuple[Cells, ...]
    mlp: Cells
    neurons: Bool[Tensor, " neuron"] | None = None
    dissected: Cells | None = None

    @property
    def decision_head(self) -> int:
        return decision_head(self.heads)

    @property
    def decision(self) -> Cells:
        return self.heads[self.decision_head]

    @property
    def other(self) -> Cells:
        """Without the head that costs least."""
        return max(self.heads, key=lambda cells: cells.whole)


def last_layer(
    model: Transformer,
    a: Int[Tensor, " sums"],
    b: Int[Tensor, " sums"],
    n_digits: int | None = None,
    chosen_on: tuple[Int[Tensor, " other"], Int[Tensor, " other"]] | None = None,
) -> LastLayer:
    """Accuracies intact, without each of the last block's heads, without its MLP, and without its carry neurons.

    Args:
        model: the run.
        a, b: the sums' two numbers.
        n_digits: digits by which the sums are classed; the model's width if None.
        chosen_on: other sums, on which the carry neurons are chosen; they are left alone if None.
    """
    parts = [INTACT, *last_heads(model), final_mlp(model)]
    neurons = None if chosen_on is None else carry_neurons(model, *chosen_on, n_digits)
    if neurons is not None:
        parts.append(dissection(neurons, model.config.layers - 1))
    intact, *found = cells(model, a, b, parts, n_digits)
    heads, (mlp, *dissected) = found[: model.config.heads], found[model.config.heads :]
    return LastLayer(intact, tuple(heads), mlp, neurons, *dissected)


def decision_pattern(found: Cells) -> tuple[float, float]:
    """How nearly a model adds every one that it should and only ever errs by adding more of them (Tab. 1, Sec. 4).

    Returns:
        The lowest accuracy of a cell at which a one arrives, and the lowest share that is right or exactly one too
        large of any other cell: both 1 where a decision head is gone, as the paper has it.
    """
    arrives = tasks.carry_arrives(found.accuracy.shape[1])
    either = found.accuracy + found.corrected
    return found.accuracy[arrives].min().item(), either[~arrives].min().item()


def mean_over(found: Cells, kind: str, *, carry: bool) -> float:
    """Mean of the cells at which a one arrives, or of the others; `kind` is `accuracy` or `corrected`."""
    arrives = tasks.carry_arrives(found.accuracy.shape[1])
    return float(getattr(found, kind)[arrives == carry].mean())


def cannot_carry(n_digits: int = 3) -> Cells:
    """What is expected of a model that adds every position right and never carries (Sec. 5, Fig. 5)."""
    arrives = tasks.carry_arrives(n_digits).float()
    return Cells(1 - arrives, arrives, whole=float("nan"))


def pearson(found: Cells, expected: Cells) -> float:
    """Pearson correlation over all accuracies and corrected accuracies; NaN if either side is constant."""
    pair = torch.stack([torch.cat([c.accuracy, c.corrected]).flatten().double() for c in (found, expected)])
    return torch.corrcoef(pair)[0, 1].item()


def sample(n_examples: int, n_digits: int, seed: int) -> tuple[Int[Tensor, " sums"], Int[Tensor, " sums"]]:
    """`n_examples` random sums of every carry class, one class after the other.

    Raises:
        BadInput: `n_examples` is not a positive whole number.
    """
    if type(n_examples) is not int or n_examples < 1:
        raise BadInput(f"n_examples={n_examples!r}: expected a whole number of sums per class, at least 1.")
    return tasks.draw_classes(tasks.patterns(n_digits), n_examples, torch.Generator().manual_seed(seed))


@torch.inference_mode()
def attention(
    model: Transformer, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"]
) -> Float[Tensor, "layer head query key"]:
    """Attention probabilities averaged over the given sums (Fig. 3)."""
    names = [f"blocks.{layer}.attn.pattern" for layer in range(model.config.layers)]
    total = torch.zeros(len(names), model.config.heads, model.config.layout.length, model.config.layout.length)
    for part_a, part_b in zip(a.split(BATCH), b.split(BATCH), strict=True):
        kept: dict[str, Tensor] = {}
        model(sums.encode(part_a, part_b, model.config.layout), recorder(kept, *names))
        total += torch.stack([kept[name].sum(0) for name in names])
    return total / len(a)


@torch.inference_mode()
def streams(
    model: Transformer,
    a: Int[Tensor, " sums"],
    b: Int[Tensor, " sums"],
    names: Sequence[str],
    ablation: Ablation = INTACT,
) -> dict[str, Float[Tensor, "sums pos ..."]]:
    """The named sites for every sum, at all positions."""
    kept: dict[str, list[Tensor]] = {name: [] for name in names}
    edit = ablation.site(model.config)
    for part_a, part_b in zip(a.split(BATCH), b.split(BATCH), strict=True):
        part: dict[str, Tensor] = {}
        record = recorder(part, *names)
        model(sums.encode(part_a, part_b, model.config.layout), lambda n, x, record=record: record(n, edit(n, x)))
        for name in names:
            kept[name].append(part[name])
    return {name: torch.cat(parts) for name, parts in kept.items()}


def carry_neurons(
    model: Transformer, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"], n_digits: int | None = None
) -> Bool[Tensor, " neuron"]:
    """Neurons of the last MLP that are more active for some carry class than for NC (Sec. 5, Dissection).

    Mean activation after the ReLU at the first answer position, class by class.
    """
    config = model.config
    n_digits = config.width if n_digits is None else n_digits
    name, first = f"blocks.{config.layers - 1}.mlp.post", config.layout.answer[-n_digits]
    total = torch.zeros(len(tasks.patterns(n_digits)), config.d_ff, dtype=torch.float64)
    count = torch.zeros(len(total))
    with torch.inference_mode():
        for part_a, part_b in zip(a.split(BATCH), b.split(BATCH), strict=True):
            kept: dict[str, Tensor] = {}
            model(sums.encode(part_a, part_b, config.layout), recorder(kept, name), read=[first])
            task = tasks.classify(part_a, part_b, n_digits)
            total.index_add_(0, task, kept[name][:, 0].double())
            count += torch.bincount(task, minlength=len(total))
    return more_active(total / count.unsqueeze(-1))


def more_active(mean: Float[Tensor, "task neuron"]) -> Bool[Tensor, " neuron"]:
    """Neurons whose mean activation is strictly larger in some carry class than in NC, which comes first."""
    return (mean[1:] > mean[0]).any(0)


def dissection(neurons: Bool[Tensor, " neuron"], layer: int) -> Ablation:
    """The ablation of the chosen neurons of a layer."""
    return Ablation(neurons=frozenset((layer, i) for i in neurons.nonzero().flatten().tolist()))


def squashing(model: Transformer, outcome: int = 74) -> Float[Tensor, " pos"]:
    """How much the final MLP squashes sums of equal outcome together, per answer position (Sec. 4).

    The `cosine_spread` of `sums.equal_sums` after the MLP, over that before; below one: squashed.
    """
    last = model.config.layers - 1
    a, b = sums.equal_sums(outcome, model.config.width)
    found = streams(model, a, b, [f"blocks.{last}.resid_mid", f"blocks.{last}.resid_post"])
    before, after = (cosine_spread(x[:, list(model.config.layout.answer)]) for x in found.values())
    return after / before


def cosine_spread(x: Float[Tensor, "sums pos d_model"]) -> Float[Tensor, " pos"]:
    """The largest minus the smallest cosine between the streams of any two sums, position by position."""
    x = torch.nn.functional.normalize(x.double(), dim=-1).transpose(0, 1)
    cosine = (x @ x.mT).flatten(1)
    return cosine.amax(1) - cosine.amin(1)


def without_decision(models: Iterable[tuple[int, Transformer]], n_digits: int = 3) -> dict[int, float]:
    """For each run, the share of whole answers that are right without its decision head, of 10,000 random sums."""
    a, b = sums.long_sums(10_000, n_digits, torch.Generator().manual_seed(0))
    return {run: last_layer(model, a, b, n_digits).decision.whole for run, model in models}


def clearest_run(without: Mapping[int, float]) -> int:
    """The run whose decision head matters most, from `without_decision`; of those within 0.05 of it, the first.

    In the author's release of the main model this is run 2, the one that the paper shows.
    """
    return min(run for run in without if without[run] <= min(without.values()) + 0.05)


def partner_mass(pattern: Float[Tensor, "*batch query key"], layout: Layout) -> Float[Tensor, "*batch pos"]:
    """How much attention each digit's row puts on the other number's digit in its column: the staircase (Sec. 4).

    For the digits of a, which a decoder cannot let look at b and which are left out there, then those of b.
    """
    left = torch.arange(layout.width)
    right = left + layout.width + 1
    looks_back = pattern[..., right, left]
    return looks_back if layout.causal else torch.cat([pattern[..., left, right], looks_back], -1)


def column_mass(
    pattern: Float[Tensor, "*batch query key"], layout: Layout, shift: int = 0
) -> Float[Tensor, "*batch pos"]:
    """How much attention each answer row puts on the two digits of the column `shift` to the right of its own.

    NaN where there is no such column.
    """
    mass = torch.full((*pattern.shape[:-2], layout.width), torch.nan)
    for i, row in enumerate(layout.answer):
        if 0 <= i + shift < layout.width:
            keys = [i + shift, i + shift + layout.width + 1]
            mass[..., i] = pattern[..., row, keys].sum(-1)
    return mass
