"""What interchange says of a run: who decides that a one is carried, who adds it, and what other ablations say.

Everything here is of the last layer, at the position of the answer digit that is read. The rule `kind` and its
threshold were fitted on runs 0-5 of the main group, ours and the author's, and on no other run.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from carry_core import groups, measure, sums
from carry_core.errors import BadInput
from carry_core.findings import heads, interchange
from carry_core.findings.base import FINDINGS, MAIN, Entry, Measurement
from carry_core.findings.base import summary as measurement
from carry_core.findings.interchange import Activations, Pairs
from carry_core.findings.survey import Evidence
from carry_core.interventions import Ablation, MeanAblation, Patch
from carry_core.model import Hook, Transformer

# The runs' values of a head, of the attention and of its skip path lie at 0.00-0.32, at 0.68 and at 0.93-1.00, where
# 1.00 is a component that moves the digit in every pair. The threshold is halfway between the last two.
DECIDES = 0.8
KINDS = {
    "one head": "one head of the last layer decides",
    "heads together": "the last layer's heads decide together, none of them alone",
    "earlier": "the stream that enters the last layer has decided already",
    "split": "the last layer's attention and what enters it decide together, neither alone",
}
COUNT = 2_000  # pairs for what a page computes itself


def who_decides(cells: pd.DataFrame, layers: int, heads: int) -> pd.DataFrame:
    """The carry-in's interchange accuracy in the last layer, mean over answer digits and directions; a row per run.

    Args:
        cells: rows of `interchange.sweep` or `last_layer`, with `run`.
        layers, heads: of the model.

    Returns:
        Columns `head` (which one), `one head`, `heads together` (all of the attention), `earlier` (its skip path),
        `final MLP`, `past the MLP` (its skip path), and `kind`.
    """
    last = f"blocks.{layers - 1}."
    own = cells[(cells.position == cells.reads) & (cells.variable == "carry_in") & (cells.direction != "both")]
    mean = own.pivot_table(index="run", columns="component", values="accuracy", aggfunc="mean")
    each = mean[[f"{last}attn.z:{head}" for head in range(heads)]]
    found = pd.DataFrame(
        {
            "head": each.to_numpy().argmax(1),
            "one head": each.max(axis=1),
            "heads together": mean[f"{last}attn_out"],
            "earlier": mean[f"{last}attn.skip"],
            "final MLP": mean[f"{last}mlp_out"],
            "past the MLP": mean[f"{last}mlp.skip"],
        },
        index=mean.index,
    )
    return found.assign(kind=[kind(row) for row in found[["one head", "heads together", "earlier"]].to_dict("records")])


def kind(accuracy: Mapping[str, float]) -> str:
    """Which of `KINDS` a run is: the first whose component moves the carry by itself."""
    return next((name for name in ("one head", "heads together", "earlier") if accuracy[name] >= DECIDES), "split")


def of_records(rows: Sequence[Mapping[str, object]] | pd.DataFrame) -> pd.DataFrame:
    """`who_decides` for the records of one group."""
    cells = pd.DataFrame(rows)
    config = groups.find(str(cells.group.iloc[0])).config
    return who_decides(cells, config.layers, config.heads)


def summary(rows: Sequence[Mapping[str, object]]) -> str:
    """A group's records in a line: how many runs are of which kind."""
    found = of_records(rows)
    kinds = "; ".join(f"{KINDS[name]}: {n}" for name, n in found.kind.value_counts().items())
    return f"{rows[0]['group']} ({rows[0]['source']}), {len(found)} runs: {kinds}."


ADDER = "Share of answers that are the full adder's with its {} set."
STATEMENTS = {  # in the terms of an interchange: what the paper says, where, and what is measured
    "one_head": ("one head of the last layer decides", "Sec. 4", "Interchange accuracy of the best head."),
    "attention": ("the last layer's attention decides", "Sec. 4", "Interchange accuracy of all heads together."),
    "final_mlp": ("the final MLP adds the one", "Sec. 4", "Interchange accuracy of the final MLP."),
    "past_final_mlp": ("nothing past the final MLP adds it", "Sec. 4", "1 less that of the path past the final MLP."),
    "zero_names_it": ("zero ablation names a head, and that head decides", "Tab. 1", "1 in a run where it is so."),
    "carry_neurons": ("the carry neurons alone carry exactly one", "Sec. 5", "Their interchange accuracy."),
    "random_neurons": ("as many random neurons do not", "Sec. 5", "1 less the interchange accuracy of these."),
    "adder_digit_sum": ("the full adder's digit sum predicts the answer", "App. I", ADDER.format("digit sums")),
    "adder_carry_in": ("the full adder's carry in predicts the answer", "App. I", ADDER.format("carry-ins")),
    "adder_all": ("the whole full adder predicts the answer", "App. I", ADDER.format("variables")),
}


def by_run(
    deciding: pd.DataFrame, neurons: pd.DataFrame | None = None, explained: pd.DataFrame | None = None
) -> dict[str, pd.DataFrame]:
    """`value` and `shows` of each of the `STATEMENTS` that can be tested: a run bears it out at `DECIDES` or more.

    Args:
        deciding: as from `who_decides`, with `ablated`, the head whose zero ablation costs more, if that is asked for.
        neurons: as from `neuron_swaps`, with `run`.
        explained: as from `abstraction`, with `run`.
    """
    values = {"one_head": deciding["one head"], "attention": deciding["heads together"]}
    values |= {"final_mlp": deciding["final MLP"], "past_final_mlp": 1 - deciding["past the MLP"]}
    shows = {}
    if "ablated" in deciding:
        shows["zero_names_it"] = (deciding["ablated"] == deciding["head"]) & (deciding["one head"] >= DECIDES)
        values["zero_names_it"] = shows["zero_names_it"].astype(float)
    if neurons is not None:
        values["carry_neurons"] = neurons[neurons["set"] == "carry"].set_index("run")["accuracy"]
        random = neurons[neurons["set"] == "random"].groupby("run")["accuracy"].mean()
        values["random_neurons"], shows["random_neurons"] = 1 - random, random < DECIDES
    if explained is not None:
        values |= {f"adder_{name}": by.set_index("run")["accuracy"] for name, by in explained.groupby("variable")}
    return {
        name: pd.DataFrame({"value": values[name], "shows": shows.get(name, values[name] >= DECIDES)})
        for name in STATEMENTS
        if name in values
    }


# what a page computes itself


def carry_pairs(model: Transformer, count: int = COUNT, seed: int = 0) -> list[Pairs]:
    """Pairs that differ in the carry into a column, for each column that has one; the model gets both sums right."""
    generator = torch.Generator().manual_seed(seed)
    return [
        interchange.right_pairs(model, "carry_in", column, count, generator) for column in range(model.config.width - 1)
    ]


INTERVENTIONS = ("zero", "mean", "resample", "interchange")
OUTCOMES = ("right", "one too many", "one too few", "other")


@torch.inference_mode()
def compare(model: Transformer, head: int, pairs: Sequence[Pairs]) -> pd.DataFrame:
    """The decision head and the final MLP under four interventions, on the same sums.

    Zero; the mean over the given sums; resample, from another of them at random; interchange, from the sum that differs
    in the carry alone. Each at the position of the answer digit that is read.

    Returns:
        A row for each `component` (`head`, `MLP`), `intervention` and `carry_in` of the sum, with the share of digits
        by `OUTCOMES`. Under interchange, all digits one too many where none is carried in, and one too few where one
        is, is a component that carries the decision, or the one.
    """
    layout, last, found = model.config.layout, model.config.layers - 1, []
    for pair in pairs:
        (a, b), (c, d) = pair.low, pair.high
        every, others = (torch.cat([a, c]), torch.cat([b, d])), (torch.cat([c, a]), torch.cat([d, b]))
        shuffled = torch.randperm(2 * len(pair), generator=torch.Generator().manual_seed(0))
        tokens, read = sums.encode(*every, layout), (layout.answer[pair.column],)
        intact = model(tokens, read=read).argmax(-1)
        parts: dict[str, dict[str, Any]] = {"head": {"heads": {(last, head)}}, "MLP": {"mlps": {last}}}
        for component, part in parts.items():
            at = {**part, "positions": read}
            hooks = {
                "zero": Ablation(**at).hook(model, read=read),
                "mean": MeanAblation(**at).hook(model, every, read),
                "resample": Patch(**at).hook(model, (every[0][shuffled], every[1][shuffled]), read),
                "interchange": Patch(**at).hook(model, others, read),
            }
            for intervention, hook in hooks.items():
                off = (model(tokens, hook, read).argmax(-1) - intact) % 10
                for carry_in, side in enumerate(off.chunk(2)):
                    shares = [(side == i).double().mean().item() for i in (0, 1, 9)]
                    found.append((component, intervention, carry_in, *shares, 1 - sum(shares)))
    frame = pd.DataFrame(found, columns=["component", "intervention", "carry_in", *OUTCOMES])
    return frame.groupby(["component", "intervention", "carry_in"], sort=False, as_index=False).mean()


def says(frame: pd.DataFrame) -> dict[tuple[str, str], str]:
    """What each intervention says of a run in a word, by component and intervention; the frame as from `compare`.

    `moves it`: interchange makes the digit the other sum's, both ways. `little`: at least nine of ten digits stay
    right. Else the mistake that is more than twice as frequent as the other: it `adds` ones where there are none or
    `forgets` ones where there are some; or `both`. `breaks` if other digits are more frequent than either.
    """
    found = {}
    for (component, intervention), by in frame.groupby(["component", "intervention"], sort=False):
        none, one = by[by.carry_in == 0].iloc[0], by[by.carry_in == 1].iloc[0]
        adds, forgets = float(none["one too many"]), float(one["one too few"])
        if intervention == "interchange" and (adds + forgets) / 2 >= DECIDES:
            word = "moves it"
        elif none["right"] + one["right"] >= 1.8:
            word = "little"
        elif none["other"] + one["other"] > 2 * max(adds, forgets):
            word = "breaks"
        elif max(adds, forgets) <= 2 * min(adds, forgets):
            word = "both"
        else:
            word = "adds" if adds > forgets else "forgets"
        found[component, intervention] = word
    return found


@torch.inference_mode()
def neuron_swaps(model: Transformer, pairs: Sequence[Pairs], draws: int = 5) -> pd.DataFrame:
    """Some neurons of the final MLP swapped alone, between sums that differ in a carry (Sec. 5, Tab. 4).

    The carry neurons of Sec. 5, as many random ones `draws` times, all others, and each single neuron.

    Returns:
        `set` (`carry`, `random`, `rest`, `single`), `neurons` (how many), `accuracy`: the digit changes by exactly the
        one; `stays`: it does not change. What is missing to 1 becomes another digit.
    """
    config, generator = model.config, torch.Generator().manual_seed(0)
    chosen = heads.carry_neurons(model, *measure.sample(1_000, config.width, 0))
    sets = [("carry", chosen), ("rest", ~chosen)]
    for _ in range(draws):
        some = torch.zeros(config.d_ff, dtype=torch.bool)
        some[torch.randperm(config.d_ff, generator=generator)[: int(chosen.sum())]] = True
        sets.append(("random", some))
    sets += [("single", one) for one in torch.eye(config.d_ff, dtype=torch.bool)]
    hits, stays = torch.zeros(2, len(sets), dtype=torch.float64)
    last, swaps = config.layers - 1, 0
    down = model.blocks[last].down.weight
    for part in pairs:
        low, high = Activations(model, part.low), Activations(model, part.high)
        position = config.layout.answer[part.column]
        for base, source in ((low, high), (high, low)):
            post, other = (x.kept[f"blocks.{last}.mlp.post"][:, position] for x in (base, source))
            resid, before = base.at(last, "resid_post")[:, position], base.guess[:, part.column]
            swaps += len(part)
            for i, (_, which) in enumerate(sets):
                moved = resid + (other - post)[:, which] @ down[:, which].T
                digit = interchange.digits_at(model, moved)
                hits[i] += (digit == source.guess[:, part.column]).sum()
                stays[i] += (digit == before).sum()
    names = [(name, int(which.sum())) for name, which in sets]
    frame = pd.DataFrame(names, columns=["set", "neurons"])
    return frame.assign(accuracy=hits / max(swaps, 1), stays=stays / max(swaps, 1))


# the whole algorithm

PLACES = {
    "digits": "the stream after the first layer, at the column's two digits",
    "digits and answer": "the same, and at the column's answer position",
}


@torch.inference_mode()
def abstraction(
    model: Transformer, head: int, place: str = "digits", count: int = COUNT, seed: int = 0
) -> pd.DataFrame:
    """How much of the behaviour the full adder explains, if its variables are where the paper says (Sec. 4, App. I).

    Digit sums are in the stream after the first layer, at the digits' positions; carry-ins in the decision head's
    output, at the answer's. Base and sources are random sums, one source for each variable; all digits of the answer
    have to be the causal model's. Only swaps after which the causal model has another answer count.

    Args:
        head: the decision head.
        place: of `PLACES`.

    Returns:
        `variable` (`digit_sum`, `carry_in`, and `all` of them, each with probability one half), `pairs`, `accuracy`.

    Raises:
        BadInput: the model has one layer only.
    """
    if model.config.layers < 2:
        raise BadInput("The full adder needs a layer that adds and one that carries: expected 2 layers or more.")
    generator, width, layout = torch.Generator().manual_seed(seed), model.config.width, model.config.layout
    n = 2 * width  # the base, a source for each digit sum, and one for each carry-in
    a, b = sums.long_sums(n * count * 3 // 2, width, generator)
    right = (interchange.answered(model, a, b) == sums.digits(a + b, width)).all(1).nonzero().flatten()
    right = right[: min(len(right) // n, count) * n].view(n, -1)
    a, b, rows = a[right], b[right], []
    for variable in ("digit_sum", "carry_in", "all"):
        swap = torch.rand(a.shape, generator=generator) < 0.5
        swap[0] = False
        if variable != "all":
            swap[slice(width + 1, n) if variable == "digit_sum" else slice(1, width + 1)] = False
        predicted, exists = _predicted(interchange.digit_sums(a, b, width), swap)
        fits = exists & (predicted != sums.digits(a[0] + b[0], width)).any(1)
        sources = [Activations(model, (x[fits], y[fits])) for x, y in zip(a, b, strict=True)]
        hook = _setting(sources, swap[:, fits], head, [layout.answer[j] for j in range(width)], place)
        logits = model(sums.encode(a[0][fits], b[0][fits], layout), hook)[:, list(layout.answer)]
        hits = (logits.argmax(-1) == predicted[fits]).all(1)
        rows.append((variable, len(hits), hits.double().mean().item()))
    return pd.DataFrame(rows, columns=["variable", "pairs", "accuracy"])


def _predicted(
    digit_sum: Int[Tensor, "sum pairs column"], swap: Bool[Tensor, "sum pairs"]
) -> tuple[Int[Tensor, "pairs column"], Bool[Tensor, " pairs"]]:
    """The full adder's answer with variables set from their sources, and whether it has no more digits than that."""
    width, base = digit_sum.shape[-1], digit_sum[0].clone()
    for j in range(width):
        base[:, j] = torch.where(swap[1 + j], digit_sum[1 + j, :, j], base[:, j])
    _, carries = interchange.full_adder(base)
    forced = {}
    for i in range(width - 1):
        _, of_source = interchange.full_adder(digit_sum[1 + width + i])
        forced[i] = torch.where(swap[1 + width + i], of_source[:, i], carries[:, i])
    exists = (base * 10 ** torch.arange(width - 1, -1, -1)).sum(1) < 10**width
    return interchange.full_adder(base, forced)[0], exists


def _setting(
    sources: Sequence[Activations], swap: Bool[Tensor, "sum pairs"], head: int, answer: Sequence[int], place: str
) -> Hook:
    """A hook that sets digit sums after the first layer, and carry-ins in a head of the last, where `swap` says so."""
    width, last = len(answer), sources[0].model.config.layers - 1

    def hook(name: str, x: Tensor) -> Tensor:
        if name == "blocks.0.resid_post":
            x = x.clone()
            for j, (source, which) in enumerate(zip(sources[1:], swap[1 : 1 + width], strict=False)):
                at = [j, width + 1 + j, *([answer[j]] if place == "digits and answer" else [])]
                x[:, at] = torch.where(which[:, None, None], source.kept[name][:, at], x[:, at])
        if name == f"blocks.{last}.attn.z":
            x = x.clone()
            for i, (source, which) in enumerate(zip(sources[1 + width :], swap[1 + width :], strict=True)):
                x[:, answer[i], head] = torch.where(
                    which[:, None], source.kept[name][:, answer[i], head], x[:, answer[i], head]
                )
        return x

    return hook


BRINGS = ("the carry", "the digit sum", "both", "nothing", "other")


@torch.inference_mode()
def what_it_brings(model: Transformer, components: Sequence[str], count: int = COUNT, seed: int = 0) -> pd.DataFrame:
    """What a component hands over between sums that differ in digit sum and carry-in, at the digit that is read.

    Of the four digits that base and source make of a digit sum and a carry-in, the one that comes out tells: the
    base's digit sum with the source's carry is a component that brings the carry, whatever the digit.

    Returns:
        A row for each component with the share of pairs by `BRINGS`, both ways, mean over answer digits.
    """
    layout, generator, found = model.config.layout, torch.Generator().manual_seed(seed), []
    for column in range(model.config.width - 1):
        pairs = interchange.right_pairs(model, "both", column, count, generator)
        low, high = Activations(model, pairs.low), Activations(model, pairs.high)
        for component, (base, source, step) in product(components, ((low, high, 1), (high, low, -1))):
            interchange.check_component(component, layout.answer[column], model.config)
            digit = interchange.swapped(model, component, layout.answer[column], base, source)[:, column]
            mine, its = base.guess[:, column], source.guess[:, column]
            outcomes = [(mine + step) % 10, (its - step) % 10, its, mine]
            shares = [(digit == outcome).double().mean().item() for outcome in outcomes]
            found.append((component, *shares, 1 - sum(shares)))
    frame = pd.DataFrame(found, columns=["component", *BRINGS])
    return frame.groupby("component", sort=False).mean().clip(lower=0)


# ---------------------------------------------------------------- the ledger's rows beyond the paper


@lru_cache(maxsize=2)
def _of_main(evidence: Evidence) -> dict[str, pd.DataFrame]:
    """Every statement on the main group: the stored maps, and what is computed from the weights."""
    maps = interchange.saved(evidence.source, MAIN)
    deciding = of_records(maps[maps.run.isin(evidence.group(MAIN).numbers)])

    def measured(run: int, model: Transformer) -> tuple[int, pd.DataFrame, pd.DataFrame]:
        head = measure.decision_head(model)
        neurons = neuron_swaps(model, carry_pairs(model, COUNT))
        return head, neurons, abstraction(model, head, "digits and answer", COUNT)

    runs = evidence.each(MAIN, measured)
    neurons, explained = (
        pd.concat({run: found[i] for run, found in runs.items()}, names=["run"]).reset_index("run") for i in (1, 2)
    )
    ablated = pd.Series({run: head for run, (head, *_) in runs.items()})
    return by_run(deciding.assign(ablated=ablated), neurons, explained)


def _row(name: str) -> Entry:
    def of(evidence: Evidence) -> Measurement:
        return measurement(_of_main(evidence)[name], STATEMENTS[name][2])

    return Entry(of, (MAIN,))


FINDINGS.update({f"beyond/{name}": _row(name) for name in STATEMENTS})
