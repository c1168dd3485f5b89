"""Tables 1, 4 and 5 from the author's released weights (Sec. 4, App. C.4 and D)."""

from types import SimpleNamespace

import pytest
import torch

from carry_core import measure
from carry_core.interventions import INTACT, Ablation, Sums
from carry_core.model import Transformer
from carry_paper import catalogue
from carry_paper.findings import heads
from carry_paper.findings.base import DECODER, DFF512
from carry_paper.pages.box import printed_cells
from carry_train.groups import MAIN

N_EXAMPLES = 400


# The part of the last layer that is ablated in each table.
TABLES = {
    "tab1/decision_head": "decision",
    "tab1/final_mlp": "mlp",
    "tab5/final_mlp": "mlp",
    "tab4/dissected": "dissected",
    "tab5/dissected": "dissected",
}


@pytest.fixture(scope="module")
def layers(released) -> dict[str, list[SimpleNamespace]]:
    """The last layer's parts by table and run; other sums choose neurons than judge them."""
    measured_sums, choosing_sums = (measure.sample(N_EXAMPLES, 3, seed) for seed in (0, 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CARRY_AUTHOR", str(released[0]))
        models = {"tab1": [model for _, model in catalogue.load(MAIN, "author").models()]}
        models |= {
            table: [catalogue.load(group, "author").model(0)]
            for table, group in (("tab4", DFF512), ("tab5", DECODER))
        }
    layers = {}
    for name, of_table in models.items():
        parts = {part for table, part in TABLES.items() if table.startswith(f"{name}/")}
        layers[name] = [last_layer(m, parts, measured_sums, choosing_sums) for m in of_table]
    return layers


def last_layer(
    model: Transformer, names: set[str], measured_sums: Sums, choosing_sums: Sums
) -> SimpleNamespace:
    """Return the accuracies of the intact model and without each of the named parts."""
    decides = measure.decision_head(model)
    parts = {"intact": INTACT}
    if "decision" in names:
        parts["decision"] = measure.last_heads(model)[decides]
    if "mlp" in names:
        parts["mlp"] = measure.final_mlp(model)
    if "dissected" in names:
        neurons = heads.carry_neurons(model, *choosing_sums).nonzero().flatten().tolist()
        last = model.config.layers - 1
        parts["dissected"] = Ablation(neurons={(last, neuron) for neuron in neurons})
    tables = measure.class_accuracies(model, *measured_sums, list(parts.values()))
    return SimpleNamespace(**dict(zip(parts, tables, strict=True)), decision_head=decides)


def test_the_released_runs_are_perfect_and_their_decision_heads_known(layers):
    assert [layer.intact.exact_match for layer in layers["tab1"]] == [1.0] * 6
    assert [layer.decision_head for layer in layers["tab1"]] == [1, 0, 0, 0, 0, 1]


@pytest.mark.parametrize("table", TABLES)
def test_every_cell_is_as_it_is_printed(layers, table):
    """Rounding, plus five standard errors of the sums of a class and of choosing neurons."""
    tables = [getattr(layer, TABLES[table]) for layer in layers[table.split("/")[0]]]
    printed = {
        kind: torch.tensor(printed_cells(table)[kind]).view(5, 3)
        for kind in ("accuracy", "corrected")
    }
    sampling_error = 0.1 if table.endswith("dissected") else 0.0
    for kind in printed:
        per_run = torch.stack([getattr(cells, kind) for cells in tables])
        error = (per_run * (1 - per_run) / N_EXAMPLES).sum(0).sqrt() / len(tables)
        off = (per_run.mean(0) - printed[kind]).abs()
        assert (off <= 0.006 + sampling_error + 5 * error).all(), (kind, off)
    intact = layers[table.split("/")[0]][0].intact.accuracy  # which is no ablated one
    assert (intact - printed["accuracy"]).abs().max() > 0.3


def test_the_means_hide_that_runs_disagree(layers):
    """The 0.49 of C@1 at position 8 is a mean of .888, 1, .074, 1, 0, 0."""
    cell = [layer.decision.accuracy[1, 1].item() for layer in layers["tab1"]]
    assert cell == pytest.approx([0.888, 1, 0.074, 1, 0, 0], abs=0.03)
