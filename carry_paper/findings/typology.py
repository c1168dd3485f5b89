"""What interchange says of a run: who decides that a one is carried, who adds it, and what other ablations say.

All but `abstraction` is of the last layer, at the position of the answer digit that is read. The
rule `who_decides` and its threshold were fitted on runs 0-5 of the main group alone, the author's
and ours after 300 epochs.
"""

from collections.abc import Mapping
from functools import lru_cache

import pandas as pd
import torch
from torch import Tensor

from carry_core import carries, measure, sums
from carry_core.errors import BadInput
from carry_core.fast.swaps import swaps_between
from carry_core.interventions import Patch
from carry_core.model import Hook, Transformer
from carry_core.pairs import Contrast, Pairs
from carry_paper.findings import heads, interchange_maps
from carry_paper.findings.base import MAIN, Fields, per_run
from carry_paper.findings.evidence import Evidence
from carry_paper.findings.interchange import correct_pairs

# Those runs' values of a head, of the attention and of its skip path lie at 0.00-0.32, at 0.68 and
# # at 0.93-1.00, where 1.00 is a component that moves the digit in every pair. The threshold is
# halfway between the last two.
DECIDES = 0.8
KINDS = {
    "one head": "one head of the last layer decides",
    "heads together": "the last layer's heads decide together, none of them alone",
    "earlier": "the stream that enters the last layer has decided already",
    "split": "the last layer's attention and what enters it decide together, neither alone",
}
COUNT = 2_000  # pairs for what a page computes itself


def who_decides(cells: pd.DataFrame) -> pd.DataFrame:
    """The carry-in's interchange accuracy in the last layer, mean over answer digits and directions; a row per run.

    From one group's rows of `interchange.sweep`, with `run`. Returns the best `head`, its accuracy
    (`one head`), that of the attention (`heads together`) and of its skip path (`earlier`), of the
    `final MLP` and of its skip path (`past the MLP`), and `kind`, the first of `KINDS` that moves
    the carry by itself.
    """
    # the last layer: its own position only
    own = cells[(cells.variable == "carry_in") & (cells.direction != "both")]
    mean = own.pivot_table("accuracy", "run", "component")
    last = f"blocks.{max(int(name.split('.')[1]) for name in mean)}."
    each = mean.filter(like=f"{last}attn.z:")
    parts = {
        "heads together": "attn_out",
        "earlier": "attn.skip",
        "final MLP": "mlp_out",
        "past the MLP": "mlp.skip",
    }
    found = pd.DataFrame(
        {"head": each.to_numpy().argmax(1), "one head": each.max(axis=1)}, index=mean.index
    )
    found = found.assign(**{name: mean[last + part] for name, part in parts.items()})
    return found.assign(kind=kinds(found))


def kinds(rows: pd.DataFrame) -> "pd.Series[str]":
    """The kind of each run: the first of `KINDS` whose part moves the carry by itself."""
    moves = rows[["one head", "heads together", "earlier"]] >= DECIDES
    return moves.idxmax(axis=1).where(moves.any(axis=1), "split")


def carry_pairs(model: Transformer, count: int = COUNT, seed: int = 0) -> dict[int, Pairs]:
    """Pairs of sums that the model gets right and that differ in the carry into a column, for each that has one."""
    generator = torch.Generator().manual_seed(seed)
    pairs = {}
    for column in range(model.config.width - 1):
        pairs[column] = correct_pairs(model, Contrast("carry_in", column), count, generator).pairs
    return pairs


@torch.inference_mode()
def neuron_swaps(model: Transformer, pairs: Mapping[int, Pairs]) -> pd.DataFrame:
    """Some neurons of the final MLP swapped alone, between sums that differ in a carry (Sec. 5, Tab. 4).

    By `set` (the `carry` neurons of Sec. 5, as many `random` ones five times, the `rest`, each
    `single` one): how many `neurons`, the `accuracy` with which the digit changes by exactly the
    one, and how often it `stays`.
    """
    config, generator = model.config, torch.Generator().manual_seed(0)
    chosen = heads.carry_neurons(model, *measure.sample(1_000, config.width, 0))
    sets = [("carry", chosen), ("rest", ~chosen)]
    for _ in range(5):
        order = torch.randperm(config.d_ff, generator=generator)
        sets.append(("random", torch.isin(torch.arange(config.d_ff), order[: int(chosen.sum())])))
    sets += [("single", one) for one in torch.eye(config.d_ff, dtype=torch.bool)]
    hits, n_swaps = torch.zeros(len(sets), 2, dtype=torch.float64), 0
    for column, numbers in pairs.items():
        swaps, position = swaps_between(model, numbers), config.layout.answer[column]
        for base in (0, 1):
            n_swaps += numbers.shape[-1]
            digits = swaps.answers[1 - base][:, column], swaps.answers[base][:, column]
            for i, (_, which) in enumerate(sets):
                digit = swaps.swapped_neurons(which, position, base)[:, column]
                hits[i] += torch.stack([(digit == wanted).sum() for wanted in digits])
    frame = pd.DataFrame(
        [(name, int(which.sum())) for name, which in sets], columns=["set", "neurons"]
    )
    shares = hits.numpy() / max(n_swaps, 1)
    return frame.assign(accuracy=shares[:, 0], stays=shares[:, 1])


@torch.inference_mode()
def abstraction(
    model: Transformer, head: int, place: str = "digits", count: int = COUNT, seed: int = 0
) -> pd.DataFrame:
    """How much of the behaviour the full adder explains, if its variables are where the paper says (Sec. 4, App. I).

    Digit sums are in the stream after the first layer, at the column's `digits` or `digits and
    answer`; carry-ins in the output of head `head` of the last, at the answer. Base and sources are
    random sums, a source for each variable. An answer counts if the swap changes the causal
    model's, and is right in all digits. For `digit_sum`, `carry_in` and `all`, each variable
    swapped with probability one half. One layer only is `BadInput`.
    """
    if model.config.layers < 2:
        raise BadInput(
            "The full adder needs a layer that adds and one that carries: expected 2 layers or more."
        )
    generator, width, layout = (
        torch.Generator().manual_seed(seed),
        model.config.width,
        model.config.layout,
    )
    n = 2 * width  # the base, a source for each digit sum, and one for each carry-in
    a, b = sums.long_sums(n * count * 3 // 2, width, generator)
    right = heads.correct_digits(model, a, b).all(1).nonzero().flatten()
    right = right[: min(len(right) // n, count) * n]
    # [number, base or source, pair]
    numbers, rows = torch.stack([a[right], b[right]]).view(2, n, len(right) // n), []
    for variable in ("digit_sum", "carry_in", "all"):
        swap = torch.rand(numbers.shape[1:], generator=generator) < 0.5
        swap[0] = False
        if variable != "all":
            swap[slice(width + 1, n) if variable == "digit_sum" else slice(1, width + 1)] = False
        predicted, exists = _predicted(numbers, swap)
        a, b = numbers[:, 0]
        fits = exists & (predicted != sums.digits(a + b, width)).any(1)
        if not fits.any():  # an early model may get no sum right
            rows.append((variable, 0, float("nan")))
            continue
        hook = _setting(model, numbers[:, 1:, fits], swap[1:, fits], head, place)
        logits = model(sums.encode(a[fits], b[fits], layout), hook)[:, list(layout.answer)]
        hits = (logits.argmax(-1) == predicted[fits]).all(1)
        rows.append((variable, len(hits), hits.double().mean().item()))
    return pd.DataFrame(rows, columns=["variable", "pairs", "accuracy"])


def _predicted(numbers: Tensor, swap: Tensor) -> tuple[Tensor, Tensor]:
    """The full adder's answer, `[pair, column]`, with variables set from their sources, and whether it is a sum's."""
    width, of_class = swap.shape[0] // 2, carries.carry_in(swap.shape[0] // 2)
    digits = sums.digits(numbers, width)
    base = torch.where(
        swap[1 : 1 + width].T, digits[:, 1 : 1 + width].diagonal(dim1=1, dim2=3), digits[:, 0]
    )
    a, b = (base * 10 ** torch.arange(width - 1, -1, -1)).sum(-1)
    c, d = numbers[:, 1 + width :]
    carry_in, theirs = (
        of_class[carries.class_index(a, b, width)],
        of_class[carries.classify(c, d, width)],
    )
    carry_in[:, :-1] = torch.where(
        swap[1 + width :].T, theirs.diagonal(dim1=0, dim2=2), carry_in[:, :-1]
    )
    return (base.sum(0) + carry_in) % 10, a + b < 10**width


def _setting(model: Transformer, sources: Tensor, swap: Tensor, head: int, place: str) -> Hook:
    """A hook that sets digit sums after the first layer, and carry-ins in a head of the last, where `swap` says so."""
    width, answer, last = model.config.width, model.config.layout.answer, model.config.layers - 1
    also = [(p,) if place == "digits and answer" else () for p in answer]
    patches = [
        Patch(names={"blocks.0.resid_post"}, positions=(j, width + 1 + j, *also[j]))
        for j in range(width)
    ]
    patches += [Patch(heads={(last, head)}, positions=(position,)) for position in answer[:-1]]
    hooks = [
        patch.hook(model, tuple(numbers))
        for patch, numbers in zip(patches, sources.unbind(1), strict=True)
    ]

    def hook(name: str, x: Tensor) -> Tensor:
        for patch, which in zip(hooks, swap, strict=True):
            if (patched := patch(name, x)) is not x:
                x = torch.where(which.view(-1, *[1] * (x.dim() - 1)), patched, x)
        return x

    return hook


@lru_cache(maxsize=2)
def statements(evidence: Evidence) -> pd.DataFrame:
    """The value of each statement `beyond/…` in each run of the main group: the stored maps, and what is computed."""
    maps = interchange_maps.load(evidence.source, MAIN)
    deciding = who_decides(maps[maps.run.isin(evidence.group(MAIN).numbers)])

    def measured(run: int, model: Transformer) -> dict[str, float]:
        head, stored = measure.decision_head(model), deciding.loc[run]
        swaps = neuron_swaps(model, carry_pairs(model, COUNT)).groupby("set").accuracy.mean()
        adder = abstraction(model, head, "digits and answer", COUNT).set_index("variable").accuracy
        return {
            "one_head": stored["one head"],
            "attention": stored["heads together"],
            "final_mlp": stored["final MLP"],
            "past_final_mlp": 1 - stored["past the MLP"],
            "zero_names_it": float(head == stored["head"] and stored["one head"] >= DECIDES),
            "carry_neurons": swaps["carry"],
            "random_neurons": 1 - swaps["random"],
            **adder.add_prefix("adder_"),
        }

    return per_run(evidence.each(MAIN, measured))


def decides(row: Fields) -> bool:
    """Return True if a part moves the digit by itself, in as many pairs as `DECIDES` says."""
    return bool(row["value"] >= DECIDES)


def random_neurons_do_not(row: Fields) -> bool:
    """Return True if random neurons do not carry; the value is 1 less their interchange accuracy."""
    return bool(row["value"] > 1 - DECIDES)
