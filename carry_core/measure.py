"""Measurements on a trained model: accuracies by carry class and position, attention, activations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from carry_core import carries, sums
from carry_core.errors import BadInput, check_whole
from carry_core.interventions import INTACT, Ablation, Combined, Intervention, MeanAblation, Read, Source, Sums, means
from carry_core.model import Hook, ModelConfig, Transformer, cache_hook
from carry_core.sums import Numbers
from carry_core.training.prefixes import SharedPrefix

Edit = Intervention | Combined
BATCH = 256  # sums in a pass: what a layer needs then stays in the processor's cache


@dataclass(frozen=True)
class ClassAccuracies:
    """Accuracies of one model under one ablation, per carry class and answer position (Tables 1, 3, 4, 5)."""

    accuracy: Float[Tensor, "task pos"]  # share of right digits
    corrected: Float[Tensor, "task pos"]  # the same with one added where there is a carry-in, and taken elsewhere
    exact_match: float  # share of answers that are right at every position, over all sums that were given


def class_accuracies(
    model: Transformer, a: Numbers, b: Numbers, interventions: Sequence[Edit] = (INTACT,), n_digits: int | None = None
) -> list[ClassAccuracies]:
    """Accuracies on the sums a + b under each intervention, classed by their last `n_digits` digits (all if None).

    The mean of a mean ablation is over the same sums, unless it is combined with another kind.
    """
    read = model.config.layout.answer[-(n_digits or model.config.width) :]
    names = {name for i in interventions if isinstance(i, MeanAblation) for name in i.targets(model.config)}
    average = means(model, a, b, sorted(names), read) if names else None
    return [score(answer, a, b) for answer in predict(model, a, b, interventions, n_digits, source=average)]


def accuracy(
    model: Transformer,
    sums: Sums,
    interventions: Edit | Mapping[str, Edit] | Sequence[Edit] = INTACT,
    n_digits: int | None = None,
) -> pd.DataFrame:
    """Accuracies as a frame: a row for each intervention, carry class and answer position (Tables 1, 3, 4, 5).

    Columns are `ablation`, `carry_class`, `position`, `carry_in` (whether there is one), `accuracy`, `corrected` (as in
    `ClassAccuracies`) and `exact_match` (over all the sums, the same in all rows of an intervention).
    """
    n_digits = n_digits or model.config.width
    several = [interventions] if isinstance(interventions, Edit) else interventions
    pairs = list(several.items()) if isinstance(several, Mapping) else [(str(i), i) for i in several]
    measured = class_accuracies(model, *sums, [i for _, i in pairs], n_digits)
    return pd.DataFrame(
        [
            (name, carries.paper_name(pattern), position, *values, cells.exact_match)
            for (name, _), cells in zip(pairs, measured, strict=True)
            for pattern, *rows in zip(
                carries.patterns(n_digits), carries.carry_in(n_digits), cells.accuracy, cells.corrected, strict=True
            )
            for position, *values in zip(
                model.config.layout.position_names[-n_digits:], *map(Tensor.tolist, rows), strict=True
            )
        ],
        columns=["ablation", "carry_class", "position", "carry_in", "accuracy", "corrected", "exact_match"],
    )


@torch.inference_mode()
def predict(
    model: Transformer,
    a: Numbers,
    b: Numbers,
    interventions: Sequence[Edit] = (INTACT,),
    n_digits: int | None = None,
    watch: Hook | None = None,
    source: Source | None = None,
) -> list[Int[Tensor, "sums pos"]]:
    """The tokens that the model answers with under each intervention, greedily, at the last `n_digits` digits; int8.

    What the interventions have in common is computed once; mean ablations take `source`. All digits are read if
    `n_digits` is None; `watch` is a hook that sees the intact model's passes from `resid_mid` of layer 0 on.
    """
    layout, n_digits = model.config.layout, n_digits or model.config.width
    shared = SharedPrefix(model, interventions, layout.answer[-n_digits:], watch, source)
    answers = [torch.empty(len(a), n_digits, dtype=torch.int8) for _ in interventions]
    for start in range(0, len(a), BATCH):
        part = slice(start, start + BATCH)
        for answer, logits in zip(answers, shared(sums.encode(a[part], b[part], layout)), strict=True):
            answer[part] = logits.argmax(-1)
    return answers


def score(guess: Int[Tensor, "sums pos"], a: Numbers, b: Numbers) -> ClassAccuracies:
    """Accuracies per class of what a model answered, the classes by as many digits as were read."""
    n_digits = guess.shape[1]
    task, answer = carries.classify(a, b, n_digits), sums.digits(a + b, n_digits)
    carry_in = carries.carry_in(n_digits)
    hit, corrected = guess == answer, (guess + torch.where(carry_in[task], 1, -1)) % 10 == answer
    count = torch.bincount(task, minlength=len(carry_in)).unsqueeze(-1)
    total = torch.zeros(2, *carry_in.shape).index_add_(1, task, torch.stack([hit, corrected]).float())
    return ClassAccuracies(total[0] / count, total[1] / count, hit.all(1).double().mean().item())


def last_heads(model: Transformer | ModelConfig, layers: int = 1) -> list[Ablation]:
    """The ablation of each head of the last layer, or of so many last layers; `BadInput` if the model has fewer."""
    config = model.config if isinstance(model, Transformer) else model
    n = config.layers
    if layers > n:
        raise BadInput(f"Expected a model with at least {layers} layers, this one has {n}: choose another group.")
    every = [(layer, head) for layer in range(n - layers, n) for head in range(config.heads)]
    return [Ablation(heads=frozenset({pair})) for pair in every]


def final_mlp(model: Transformer | ModelConfig) -> Ablation:
    """The ablation of the last block's MLP."""
    config = model.config if isinstance(model, Transformer) else model
    return Ablation(mlps=frozenset({config.layers - 1}))


def sample(n_examples: int, n_digits: int, seed: int) -> tuple[Numbers, Numbers]:
    """`n_examples` random sums of every carry class, one class after the other; `BadInput` for no such number."""
    check_whole("n_examples", n_examples, 1, 10**7, "sums per class")
    return carries.sample_classes(carries.patterns(n_digits), n_examples, torch.Generator().manual_seed(seed))


def exact_match_without_heads(model: Transformer) -> list[float]:
    """Exact match without each head of the last layer, on the same 10,000 random sums for every run."""
    a, b = sums.long_sums(10_000, model.config.width, torch.Generator().manual_seed(0))
    return [accuracies.exact_match for accuracies in class_accuracies(model, a, b, last_heads(model))]


def decision_head(model: Transformer) -> int:
    """The head of the last layer whose ablation costs most exact matches (Sec. 4), on a fixed draw."""
    without = exact_match_without_heads(model)
    return without.index(min(without))


def attention(model: Transformer, a: Numbers, b: Numbers) -> Float[Tensor, "layer head query key"]:
    """Attention probabilities averaged over the given sums (Fig. 3)."""
    names = [f"blocks.{layer}.attn.pattern" for layer in range(model.config.layers)]
    return torch.stack(list(means(model, a, b, names).values()))


def class_attention(
    model: Transformer, classes: Sequence[str], n_examples: int, seed: int
) -> Float[Tensor, "task layer head query key"]:
    """`attention` to `n_examples` random sums of each of these carry classes (Fig. 3)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([attention(model, *carries.sample_class(c, n_examples, generator)) for c in classes])


@torch.inference_mode()
def activations(
    model: Transformer, a: Numbers, b: Numbers, names: Sequence[str], ablation: Ablation = INTACT, read: Read = None
) -> dict[str, Float[Tensor, "sums pos ..."]]:
    """The named sites for every sum, at all positions; those of the last layer at the positions `read` if given."""
    kept: dict[str, list[Tensor]] = {name: [] for name in names}
    edit = ablation.hook(model, read=read)
    for part_a, part_b in zip(a.split(BATCH), b.split(BATCH), strict=True):
        part: dict[str, Tensor] = {}
        record = cache_hook(part, *map(model.config.hook_name, names))
        tokens = sums.encode(part_a, part_b, model.config.layout)
        model(tokens, lambda n, x, record=record: record(n, edit(n, x)), read)
        for name in names:
            kept[name].append(part[model.config.hook_name(name)])
    return {name: torch.cat(parts) for name, parts in kept.items()}
