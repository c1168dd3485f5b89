"""The net under refactorings: it covers every row, and a changed number does not slip through."""

import json

import numpy as np
import pytest
import torch

from carry_paper.ledger import claims
from carry_paper.pages import playground
from tests import net


def golden(part):
    return json.loads((net.GOLDEN / f"{part}.json").read_text())


@pytest.mark.parametrize("source", ["ours", "author"])
def test_every_row_of_the_ledger_is_in_the_golden_files(source):
    assert list(golden(source)) == list(claims.claims())


def test_the_net_decodes_what_the_playground_gets():
    generator = torch.Generator().manual_seed(0)
    tensors = {
        "embed": torch.randn(12, 4, generator=generator),
        "bias": torch.randn(3, generator=generator),
    }
    header, decoded = net.unpacked(playground._packed({"id": "n2/0"}, tensors))
    assert header == {"id": "n2/0"}
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(decoded[name], tensor.half().double().numpy())


def test_one_changed_number_differs():
    rows = {
        "tab1/x": {"verdict": "differs", "value": [0.5, None]},
        "tab1/y": {"verdict": "not run", "value": None},
    }
    last_bits = {**rows, "tab1/x": {"verdict": "differs", "value": [0.5 + 1e-5, None]}}
    assert net.differing(rows, last_bits) == []
    for changed in (
        {"value": [0.502, None]},
        {"verdict": "reproduced"},
        {"value": None},
        {"value": [0.5]},
    ):
        assert net.differing(rows, rows | {"tab1/x": rows["tab1/x"] | changed}) == ["tab1/x"]
    assert net.differing(rows, {"tab1/y": rows["tab1/y"]}) == ["tab1/x"]
    weights = np.random.default_rng(0).standard_normal((128, 128))
    before = net.fingerprint({}, {"mlp": weights})
    weights[17, 40] += 0.5
    assert net.differing(before, net.fingerprint({}, {"mlp": weights})) == ["tensors"]


def test_the_playground_in_the_golden_file_is_the_one_of_these_runs():
    files = [f"{group}-run{run}.js" for group, runs in playground.CHOSEN.items() for run in runs]
    assert golden("playground").keys() == {
        *files,
        *(f"{page}.js" for page in playground.SLIDERS),
        "still.svg",
        "runs.js",
    }
