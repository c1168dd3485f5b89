"""The benchmarks compare like with like, and count what they say; nothing here is timed."""

import pytest
import torch

from carry_core import bench, sums
from carry_core.groups import Group
from carry_core.model import ModelConfig, rotate


@pytest.mark.parametrize("turned", [bench.rotate_every_two, rotate])
def test_the_baseline_is_the_same_model(config, turned):
    torch.manual_seed(0)
    plain = bench.Plain(Group("small", config), turned)
    a, b = sums.long_sums(5, config.width, torch.Generator().manual_seed(0))
    tokens = sums.encode(a, b, config.layout)
    torch.testing.assert_close(plain.logits(tokens, 0.0), plain.model(tokens), rtol=1e-4, atol=1e-5)


def test_flops_by_counting():
    """Two layers: 10 looked-up outputs and 20 in the first MLP; 20 keys and values, 3 + 3 + 6 in the last block."""
    assert bench.step_flops(ModelConfig(), 1024) == 6 * 1024 * (30 + 32) * 128 * 128
    assert bench.step_flops(ModelConfig(layers=1), 1) == 6 * (3 + 6) * 128 * 128


def test_rows_have_every_ratio(monkeypatch):
    rows = bench.train(layers=(1,), rounds=1)
    assert [row["precision"] for row in rows] == ["fp32", "bf16"]
    (row,) = bench.claims(rounds=1, n_sums=64)
    assert row["ratio, lowest"] <= row["ratio"] <= row["ratio, highest"]
