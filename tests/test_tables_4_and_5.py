"""Tables 4 and 5 from the author's released weights: what is left without the carry neurons (App. C.4 and D)."""

import pytest

from carry_core import carries, measure, runs
from carry_core.findings import heads
from carry_core.findings.base import DECODER, DFF512
from carry_core.findings.heads import LastLayer
from carry_core.ledger import claims
from carry_core.pages import comparison

N_EXAMPLES = 3000
GROUPS = {"tab4": DFF512, "tab5": DECODER}


@pytest.fixture(scope="module")
def layers(released) -> dict[str, LastLayer]:
    """The one released run of each table, its neurons chosen on other sums than it is judged by."""
    patch = pytest.MonkeyPatch()
    patch.setenv("CARRY_AUTHOR", str(released[0]))
    a, b = measure.sample(N_EXAMPLES, 3, seed=0)
    chosen_on = measure.sample(N_EXAMPLES, 3, seed=1)
    models = {table: runs.load(group, "author").model(0) for table, group in GROUPS.items()}
    patch.undo()
    return {table: heads.ablate_last_layer(model, a, b, chosen_on=chosen_on) for table, model in models.items()}


@pytest.mark.parametrize("table", ["tab4/dissected", "tab5/dissected", "tab5/final_mlp"])
def test_every_cell_is_judged_to_be_reproduced(layers, table):
    name, part = table.split("/")
    found = layers[name]
    cells = found.mlp if part == "final_mlp" else found.dissected
    judged = comparison.judge_cells(table, "author", {0: cells}, [N_EXAMPLES] * 5)
    assert {verdict for rows in judged.verdicts.values() for row in rows for verdict in row} == {"reproduced"}
    intact = comparison.judge_cells(table, "author", {0: found.intact}, [N_EXAMPLES] * 5).verdicts["accuracy"]
    arrives = carries.carry_in(3).tolist()
    wrong = [intact[t][p] for t in range(5) for p in range(3) if arrives[t][p]]
    assert wrong == ["differs"] * 6  # what judges the ablated model would not take the intact one for it


@pytest.mark.parametrize(("table", "row"), [("tab4", "n2_dff512"), ("tab5", "decoder")])
def test_about_as_many_neurons_carry_as_the_paper_says(layers, table, row):
    """A draw of 3,000 sums a class in place of 20,000: a tenth more or less."""
    printed = claims.claims()[f"{row}/dissection/neurons"].paper
    assert int(layers[table].neurons.sum()) == pytest.approx(printed, rel=0.1)


def test_the_wide_run_cannot_take_the_full_ablation_and_the_decoder_can(layers):
    elsewhere = ~carries.carry_in(3)
    assert layers["tab4"].mlp.accuracy[elsewhere].mean() < 0.5
    assert layers["tab5"].mlp.accuracy[elsewhere].mean() > 0.9
    for found in layers.values():
        assert found.dissected.accuracy[elsewhere].min() > 0.99
