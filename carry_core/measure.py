"""What the paper measures on a trained model: accuracies per class and position, attention, dissection, squashing."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from carry_core import carries, sums
from carry_core.errors import BadInput
from carry_core.interventions import INTACT, Ablation, Combined, Intervention, MeanAblation, Source, Sums, means
from carry_core.model import POINTS, Hook, ModelConfig, Transformer, cache_hook, no_hook
from carry_core.sums import Layout
from carry_core.training.layers import FirstLayer

BATCH = 256  # sums in a pass: what a layer needs then stays in the processor's cache

BATCH = 256  # sums in a pass: what a layer needs then stays in the processor's cache


@dataclass(frozen=True)
class ClassAccuracies:
    """Accuracies of one model under one ablation (Tables 1, 3, 4, 5).

    Attributes:
        accuracy: share of right digits, per class and answer position.
        corrected: the same after adding one where a carry arrives and subtracting one elsewhere, each position
            by itself and modulo ten.
        exact_match: share of answers that are right at every position, over all sums that were given.
    """

    accuracy: Float[Tensor, "task pos"]
    corrected: Float[Tensor, "task pos"]
    exact_match: float


def class_accuracies(
    model: Transformer,
    a: Int[Tensor, " sums"],
    b: Int[Tensor, " sums"],
    interventions: Sequence[Intervention | Combined] = (INTACT,),
    n_digits: int | None = None,
) -> list[ClassAccuracies]:
    """Accuracies under each intervention; the mean of a mean ablation is over the same sums.

    Args:
        a, b: the sums' two numbers.
        interventions: what to do, one result each.
        n_digits: digits by which the sums are classed; the model's width if None.
    """
    read = model.config.layout.answer[-(n_digits or model.config.width) :]
    names = {name for i in interventions if isinstance(i, MeanAblation) for name in i.targets(model.config)}
    average = means(model, a, b, sorted(names), read) if names else None
    return [score(answer, a, b) for answer in predict(model, a, b, interventions, n_digits, source=average)]


def accuracy(
    model: Transformer,
    sums: Sums,
    interventions: Mapping[str, Intervention | Combined] | Sequence[Intervention | Combined] = (INTACT,),
    n_digits: int | None = None,
) -> pd.DataFrame:
    """Accuracies as a frame: a row for each intervention, carry class and answer position (Tables 1, 3, 4, 5).

    Returns:
        Columns `ablation`, `carry_class`, `position`, `accuracy`, `corrected` (as in `ClassAccuracies`) and
        `exact_match` (over all the sums, the same in all rows of an intervention).
    """
    n_digits = n_digits or model.config.width
    named = interventions if isinstance(interventions, Mapping) else {str(i): i for i in interventions}
    measured = class_accuracies(model, *sums, list(named.values()), n_digits)
    return pd.DataFrame(
        [
            (name, carries.paper_name(pattern), position, *values, cells.exact_match)
            for name, cells in zip(named, measured, strict=True)
            for pattern, *rows in zip(carries.patterns(n_digits), cells.accuracy, cells.corrected, strict=True)
            for position, *values in zip(
                model.config.layout.position_names[-n_digits:], *map(Tensor.tolist, rows), strict=True
            )
        ],
        columns=["ablation", "carry_class", "position", "accuracy", "corrected", "exact_match"],
    )


@torch.inference_mode()
def predict(
    model: Transformer,
    a: Int[Tensor, " sums"],
    b: Int[Tensor, " sums"],
    interventions: Sequence[Intervention | Combined] = (INTACT,),
    n_digits: int | None = None,
    watch: Hook | None = None,
    source: Source | None = None,
) -> list[Int[Tensor, "sums pos"]]:
    """The tokens that the model answers with under each intervention, greedily, at the last `n_digits` digits; int8.

    Args:
        a, b: the sums' two numbers.
        interventions: what to do, one result each; what they have in common is computed once.
        n_digits: how many digits of the answer to read; the model's width if None.
        watch: a hook that sees the intact model's passes, from layer 0's `resid_mid` on.
        source: as interventions' hooks take it.
    """
    layout, n_digits = model.config.layout, n_digits or model.config.width
    shared = SharedPrefix(model, interventions, layout.answer[-n_digits:], watch, source)
    answers = [torch.empty(len(a), n_digits, dtype=torch.int8) for _ in interventions]
    for start in range(0, len(a), BATCH):
        part = slice(start, start + BATCH)
        for answer, logits in zip(answers, shared(sums.encode(a[part], b[part], layout)), strict=True):
            answer[part] = logits.argmax(-1)
    return answers


class SharedPrefix:
    """Logits of a model under several interventions; what they have in common, from the embedding on, is computed once.

    The model's weights must not change while this is used. Arguments as `predict` takes them.
    """

    def __init__(
        self,
        model: Transformer,
        interventions: Sequence[Intervention | Combined],
        read: Sequence[int] | None = None,
        watch: Hook | None = None,
        source: Source | None = None,
    ) -> None:
        self.model, self.read, self.first = model, read, FirstLayer(model)
        self.hooks = [i.hook(model, source, read) for i in interventions]
        self.changes: list[dict[str, Hashable]] = [i.changes(model.config) for i in interventions]
        self.watch = watch or no_hook
        if watch is not None:  # a member of its own, so that it sees the intact model whatever else is asked for
            self.changes.append({})

    @torch.inference_mode()
    def __call__(self, tokens: Int[Tensor, "batch pos"]) -> list[Float[Tensor, "batch query vocab"]]:
        """The logits under each intervention."""
        logits: dict[int, Tensor] = {}
        self._follow(0, tokens, self.first.resid(tokens), range(len(self.changes)), logits)
        return [logits[i] for i in range(len(self.hooks))]

    def _follow(self, l: int, tokens: Tensor, resid: Tensor, members: Sequence[int], logits: dict[int, Tensor]) -> None:
        """From the stream that enters a layer to the logits of the members, which have done the same so far."""
        model, block, query = self.model, self.model.blocks[l], self.model.queries(l, self.read)
        points, last = [f"blocks.{l}.{point}" for point in POINTS], l == model.config.layers - 1
        at_z = POINTS.index("attn.z")
        for hook, changed, alike in self._split(members, ["embed", *points[:at_z]]):
            forks = self._split(alike, [*points[at_z:], "logits"])
            tables = l == 0 and not changed
            stream = resid if tables else hook(points[0], hook("embed", resid) if l == 0 else resid)
            if not tables:
                z = block.attention(stream, hook, query)
            elif any(changed for _, changed, _ in forks):
                z = self.first.z(tokens, query)
            for hook, changed, together in forks:
                if tables and not changed:
                    mid = hook(f"blocks.{l}.resid_mid", self.first.mid(tokens, query))
                else:
                    mid = block.mix(stream[:, query], z, hook)
                after = block.mlp(mid, hook)
                if last:
                    logits |= dict.fromkeys(together, hook("logits", model.unembed(model.norm(after))))
                else:
                    self._follow(l + 1, tokens, after, together, logits)

    def _split(self, members: Sequence[int], names: Sequence[str]) -> list[tuple[Hook, bool, list[int]]]:
        """The members by what they change among the names: a hook that does it, and whether that is anything at all."""
        groups: dict[tuple[Hashable, ...], list[int]] = {}
        for i in members:
            done = tuple((name, self.changes[i][name]) for name in names if name in self.changes[i])
            groups.setdefault(done, []).append(i)
        watched = len(self.hooks)
        return [
            (self.hooks[group[0]] if done else self.watch if watched in group else no_hook, bool(done), group)
            for done, group in groups.items()
        ]


def score(guess: Int[Tensor, "sums pos"], a: Int[Tensor, " sums"], b: Int[Tensor, " sums"]) -> ClassAccuracies:
    """Accuracies per class of what a model answered, the classes by as many digits as were read."""
    n_digits = guess.shape[1]
    task, answer = carries.classify(a, b, n_digits), sums.digits(a + b, n_digits)
    arrives = carries.carry_in(n_digits)
    shift = torch.where(arrives[task], 1, -1)
    hit, corrected = guess == answer, (guess + shift) % 10 == answer
    count = torch.bincount(task, minlength=len(arrives)).unsqueeze(-1)
    total = torch.zeros(2, *arrives.shape).index_add_(1, task, torch.stack([hit, corrected]).float())
    return ClassAccuracies(total[0] / count, total[1] / count, hit.all(1).double().mean().item())


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


def decision_head(heads: Sequence[ClassAccuracies]) -> int:
    """The last layer's head whose ablation costs more whole-answer accuracy (Sec. 4); `heads` as `last_heads`."""
    return min(range(len(heads)), key=lambda head: heads[head].exact_match)


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

    intact: ClassAccuracies
    heads: tuple[ClassAccuracies, ...]
    mlp: ClassAccuracies
    neurons: Bool[Tensor, " neuron"] | None = None
    dissected: ClassAccuracies | None = None

    @property
    def decision_head(self) -> int:
        return decision_head(self.heads)

    @property
    def decision(self) -> ClassAccuracies:
        return self.heads[self.decision_head]

    @property
    def other(self) -> ClassAccuracies:
        """Without the head that costs least."""
        return max(self.heads, key=lambda cells: cells.exact_match)


def ablate_last_layer(
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
    intact, *found = class_accuracies(model, a, b, parts, n_digits)
    heads, (mlp, *dissected) = found[: model.config.heads], found[model.config.heads :]
    return LastLayer(intact, tuple(heads), mlp, neurons, *dissected)


def decision_head_scores(found: ClassAccuracies) -> tuple[float, float]:
    """How nearly a model adds every one that it should and only ever errs by adding more of them (Tab. 1, Sec. 4).

    Returns:
        The lowest accuracy of a cell at which a one arrives, and the lowest share that is right or exactly one too
        large of any other cell: both 1 where a decision head is gone, as the paper has it.
    """
    arrives = carries.carry_in(found.accuracy.shape[1])
    either = found.accuracy + found.corrected
    return found.accuracy[arrives].min().item(), either[~arrives].min().item()


def mean_over(found: ClassAccuracies, kind: str, *, carry: bool) -> float:
    """Mean of the cells at which a one arrives, or of the others; `kind` is `accuracy` or `corrected`."""
    arrives = carries.carry_in(found.accuracy.shape[1])
    return float(getattr(found, kind)[arrives == carry].mean())


def no_carry_reference(n_digits: int = 3) -> ClassAccuracies:
    """What is expected of a model that adds every position right and never carries (Sec. 5, Fig. 5)."""
    arrives = carries.carry_in(n_digits).float()
    return ClassAccuracies(1 - arrives, arrives, exact_match=float("nan"))


def pearson(found: ClassAccuracies, expected: ClassAccuracies) -> float:
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
    return carries.sample_classes(carries.patterns(n_digits), n_examples, torch.Generator().manual_seed(seed))


@torch.inference_mode()
def attention(
    model: Transformer, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"]
) -> Float[Tensor, "layer head query key"]:
    """Attention probabilities averaged over the given sums (Fig. 3)."""
    names = [f"blocks.{layer}.attn.pattern" for layer in range(model.config.layers)]
    total = torch.zeros(len(names), model.config.heads, model.config.layout.length, model.config.layout.length)
    for part_a, part_b in zip(a.split(BATCH), b.split(BATCH), strict=True):
        kept: dict[str, Tensor] = {}
        model(sums.encode(part_a, part_b, model.config.layout), cache_hook(kept, *names))
        total += torch.stack([kept[name].sum(0) for name in names])
    return total / len(a)


@torch.inference_mode()
def activations(
    model: Transformer,
    a: Int[Tensor, " sums"],
    b: Int[Tensor, " sums"],
    names: Sequence[str],
    ablation: Ablation = INTACT,
) -> dict[str, Float[Tensor, "sums pos ..."]]:
    """The named sites for every sum, at all positions."""
    kept: dict[str, list[Tensor]] = {name: [] for name in names}
    edit = ablation.hook(model)
    for part_a, part_b in zip(a.split(BATCH), b.split(BATCH), strict=True):
        part: dict[str, Tensor] = {}
        record = cache_hook(part, *names)
        model(sums.encode(part_a, part_b, model.config.layout), lambda n, x, record=record: record(n, edit(n, x)))
        for name in names:
            kept[name].append(part[name])
    return {name: torch.cat(parts) for name, parts in kept.items()}


def underadds(measured: ClassAccuracies) -> bool:
    """Whether a model forgets ones that are needed more than it adds others: the lower mean accuracy tells.

    Cells at positions where no carried one can arrive do not count.
    """
    arrives = carries.carry_in(measured.accuracy.shape[1])
    elsewhere = ~arrives & arrives.any(0)
    return bool(measured.accuracy[arrives].mean() < measured.accuracy[elsewhere].mean())


def carry_neurons(
    model: Transformer, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"], n_digits: int | None = None
) -> Bool[Tensor, " neuron"]:
    """Neurons of the last MLP that are more active for some carry class than for NC (Sec. 5, Dissection).

    Mean activation after the ReLU at the first answer position, class by class.
    """
    config = model.config
    n_digits = config.width if n_digits is None else n_digits
    name, first = f"blocks.{config.layers - 1}.mlp.post", config.layout.answer[-n_digits]
    total = torch.zeros(len(carries.patterns(n_digits)), config.d_ff, dtype=torch.float64)
    count = torch.zeros(len(total))
    with torch.inference_mode():
        for part_a, part_b in zip(a.split(BATCH), b.split(BATCH), strict=True):
            kept: dict[str, Tensor] = {}
            model(sums.encode(part_a, part_b, config.layout), cache_hook(kept, name), read=[first])
            task = carries.classify(part_a, part_b, n_digits)
            total.index_add_(0, task, kept[name][:, 0].double())
            count += torch.bincount(task, minlength=len(total))
    return carry_neuron_mask(total / count.unsqueeze(-1))


def carry_neuron_mask(mean: Float[Tensor, "task neuron"]) -> Bool[Tensor, " neuron"]:
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
    found = activations(model, a, b, [f"blocks.{last}.resid_mid", f"blocks.{last}.resid_post"])
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
    return {run: ablate_last_layer(model, a, b, n_digits).decision.exact_match for run, model in models}


def run_most_hurt_by_decision_head(without: Mapping[int, float]) -> int:
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
