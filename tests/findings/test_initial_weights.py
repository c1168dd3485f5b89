"""Features of initial weights, and a test that sees what is planted."""

import numpy as np
import pandas as pd
import pytest
import torch

from carry_paper.findings import initial_weights
from carry_train import groups
from carry_train.groups import find
from carry_train.precisions import TORCH_FP32
from carry_train.trainer import Trainer

GROUP = find("n2_s0.3_w0.2")


def test_the_initial_model_is_the_one_that_a_training_begins_with():
    trainer = Trainer(GROUP, groups.find_recipe("minute", GROUP), [3], precision=TORCH_FP32)
    model = initial_weights.initial_model(GROUP, 3)
    assert trainer.parameters.keys() == model.state_dict().keys()
    for name, weights in model.state_dict().items():
        assert torch.equal(weights, trainer.parameters[name][0]), name


def test_heads_are_in_the_order_of_their_attention_to_the_right():
    table = initial_weights.table(GROUP, [3, 4])
    assert table.shape == (2, 16)
    assert table.index.tolist() == [3, 4]
    for layer in (0, 1):
        first, second = (table[f"layer {layer}, {rank}, right"] for rank in (0, 1))
        assert (first <= second).all()
    assert not np.allclose(table.loc[3], table.loc[4])


def test_heads_that_change_places_change_no_feature():
    model = initial_weights.initial_model(GROUP, 3)
    before = initial_weights.features(model)
    size = GROUP.config.d_head
    with torch.no_grad():
        block = model.blocks[1]
        for matrix in (block.q, block.k, block.v):
            matrix.weight.copy_(matrix.weight.roll(size, 0))
            if matrix.bias is not None:
                matrix.bias.copy_(matrix.bias.roll(size, 0))
        block.o.weight.copy_(block.o.weight.roll(size, 1))
    assert initial_weights.features(model) == pytest.approx(before, rel=1e-4)


def test_a_planted_feature_is_seen_and_noise_is_not(monkeypatch):
    monkeypatch.setattr(initial_weights, "PERMUTATIONS", 39)
    random = np.random.default_rng(0)
    noise = pd.DataFrame(random.normal(size=(60, 16)))
    labels = random.random(60) < 0.7
    assert initial_weights.predicted(noise, np.arange(60) < 5).p > 0.05
    planted = noise.assign(planted=noise[0] + 3 * labels)
    prediction = initial_weights.predicted(planted, labels)
    assert prediction.p == pytest.approx(1 / 40)
    assert prediction.area > prediction.seen
    assert prediction[:2] == (60, labels.sum())
    assert initial_weights.predicted(noise, np.arange(60) < 4) is None
