"""Experiments that decide why a row of the ledger is not reproduced.

Each cause `seeds` in `data/claims.yml` names the experiment that shows it. The numbers are printed
by `make causes`, from the stored weights and from the author's.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Bool
from torch import Tensor

from carry_core import carries, measure, sums
from carry_core.interventions import Ablation, Intervention, MeanAblation
from carry_core.model import Transformer
from carry_core.sums import Numbers
from carry_paper.findings import heads, neurons
from carry_paper.findings.base import Fields

# The two values that may take the place of an ablated part: zero, as in the paper, and its mean.
KINDS: Mapping[str, type[Intervention]] = {"zero": Ablation, "mean": MeanAblation}

# ---- what takes the place of an ablated part (Tab. 3, App. C)


def without_final_mlp(model: Transformer, a: Numbers, b: Numbers) -> Fields:
    """Accuracy without the final MLP, of digits without and with a carry-in, by kind of ablation.

    `excepted` is the cell `C all con.` at position 8, which the paper's Table 3 excepts.
    """
    last_layer = model.config.layers - 1
    ablations = [kind(mlps=frozenset({last_layer})) for kind in KINDS.values()]
    tables = measure.class_accuracies(model, a, b, ablations)
    fields = {}
    for name, table in zip(KINDS, tables, strict=True):
        fields[f"{name}_no_carry"] = heads.mean_over(table, "accuracy", carry=False)
        fields[f"{name}_carry"] = heads.mean_over(table, "accuracy", carry=True)
        fields[f"{name}_excepted"] = float(table.accuracy[heads.C_ALL_CON_AT_8])
    return fields


def costliest_heads(model: Transformer, a: Numbers, b: Numbers) -> Fields:
    """Exact matches that the costliest head of the last two layers costs, by kind of ablation."""
    n_layers = model.config.layers
    parts = [(layer, head) for layer in (-2, -1) for head in range(model.config.heads)]
    ablations = []
    for kind in KINDS.values():
        for layer, head in parts:
            ablations.append(kind(heads=frozenset({(n_layers + layer, head)})))
    intact, *ablated = measure.class_accuracies(model, a, b, [Ablation(), *ablations])
    costs = [intact.exact_match - table.exact_match for table in ablated]
    return {"zero": max(costs[: len(parts)]), "mean": max(costs[len(parts) :])}


# ---- the decision head of decoders (App. D)


def decision_head_line(model: Transformer, a: Numbers, b: Numbers) -> Fields:
    """Place of a zero output on the line from the decision head's mean without a carry-in to with.

    It is 0 at the mean without a carry-in, and 1 at that with one; the line is that of what the
    head writes to the stream, and the place is a mean over the columns. The other fields are the
    share of digits one too large without a carry-in, and of those correct with one, if the head
    writes nothing (`zero`), its mean without a carry-in (`no_carry`), or that with one (`carry`).
    """
    config = model.config
    last_layer = config.layers - 1
    head = measure.decision_head(model)
    part = frozenset({(last_layer, head)})
    name = f"blocks.{last_layer}.attn.z"
    z = measure.activations(model, a, b, [name], read=config.layout.answer)[name][:, :, head]
    columns_of_head = slice(head * config.d_head, (head + 1) * config.d_head)
    written = z @ model.blocks[last_layer].o.weight[:, columns_of_head].T  # (sums, pos, d_model)
    carry_in = carries.carry_in(config.width)[carries.classify(a, b, config.width)]

    n_columns = config.width - 1  # nothing is carried into the last one
    places = []
    shares: dict[str, list[tuple[float, float]]] = {"zero": [], "no_carry": [], "carry": []}
    for column in range(n_columns):
        has_carry = carry_in[:, column]
        without, with_carry = (
            written[~has_carry, column].mean(0),
            written[has_carry, column].mean(0),
        )
        line = with_carry - without
        places.append(float(-without @ line / (line @ line)))
        position = (config.layout.answer[column],)
        zero = Ablation(heads=part, positions=position)
        mean = MeanAblation(heads=part, positions=position)
        hooks = {
            "zero": zero.hook(model, None, position),
            "no_carry": mean.hook(model, (a[~has_carry], b[~has_carry]), position),
            "carry": mean.hook(model, (a[has_carry], b[has_carry]), position),
        }
        tokens = sums.encode(a, b, config.layout)
        correct = sums.digits(a + b, config.width)[:, column]
        for kind, hook in hooks.items():
            with torch.no_grad():
                digit = model(tokens, hook, position)[:, 0].argmax(-1)
            too_large = (digit - correct) % 10 == 1
            shares[kind].append(
                (_share(too_large[~has_carry]), _share((digit == correct)[has_carry]))
            )
    fields: dict[str, float] = {"value": sum(places) / n_columns}
    for kind, by_column in shares.items():
        added, carried = zip(*by_column, strict=True)
        fields[f"{kind}_adds"] = sum(added) / n_columns
        fields[f"{kind}_carries"] = sum(carried) / n_columns
    return fields


def _share(mask: Bool[Tensor, " _"]) -> float:
    """Return the share of a mask that is true."""
    return float(mask.double().mean())


# ---- the axes on which the carry lies (Sec. 5, App. H)

MOST_AXES = 4


def carry_on_axes(
    model: Transformer, a: Numbers, b: Numbers, n_digits: int | None = None
) -> Fields:
    """Correlation of activity with a carry-in and the best direction in the leading axes.

    (Sec. 5.) One field for each number of leading axes, up to `MOST_AXES`; the first two are those
    of `neurons.CarryAxis`. `share_1` ... are the axes' shares of the weights' squared norm.
    """
    more = neurons.singular_axes(model, a, b, n_digits).more
    weight = model.blocks[model.config.layers - 1].up.weight.double()
    u, s, _ = torch.linalg.svd(weight, full_matrices=False)
    points = u * s  # (neuron, axis)
    centred = more - more.mean()
    fields = {}
    for n_axes in range(1, MOST_AXES + 1):
        along = points[:, :n_axes] - points[:, :n_axes].mean(0)
        fitted = along @ torch.linalg.lstsq(along, centred[:, None]).solution
        fields[f"axes_{n_axes}"] = float(fitted.norm() / centred.norm())
    shares = s.square() / s.square().sum()
    fields |= {f"share_{i + 1}": float(shares[i]) for i in range(MOST_AXES)}
    return fields
