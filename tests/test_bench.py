"""The benchmarks compare like with like, and count what they say; nothing here is timed."""

import pytest
import torch

from carry_core import bench, sums
from carry_core.errors import BadInput
from carry_core.groups import Group
from carry_core.model import ModelConfig, rotate
from carry_core.plots import table_of_costs


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
    for row in rows:
        assert row["share of matmul peak"] == pytest.approx(row["floor, ms"] / row["ours, ms"], rel=0.15, abs=0.01)
    (row,) = bench.claims(rounds=1, n_sums=64)
    assert row["ratio, lowest"] <= row["ratio"] <= row["ratio, highest"]


def test_the_gpus_benchmark_runs(small_group):
    """On the CPU here: what is measured is the trainer's own step, of so many runs."""
    rows = bench.train_stacked(small_group, runs=2, device="cpu", steps=1)
    assert [row["precision"] for row in rows] == ["fp32", "bf16"]
    assert all(row["runs"] == 2 and row["ours, ms"] > 0 and row["device"].startswith("cpu") for row in rows)


def test_what_is_saved_is_what_the_book_shows(data):
    assert bench.saved("train") is None
    assert table_of_costs(None).rows == [["a GPU", "6", "2", "fp32", "–", "not measured", "–", "–", "–"]]
    row = {
        "device": "cpu", "runs": 1, "layers": 2, "precision": "bf16", "plain fp32, ms": 210.4, "ours, ms": 52.61,
        "ratio": 4.0, "ratio, lowest": 3.9, "ratio, highest": 4.25, "floor, ms": 26.3, "share of matmul peak": 0.5,
    }  # fmt: skip
    bench.save("train", [row])
    found = bench.saved("train")
    assert found["rows"] == [row]
    assert found["torch"] == torch.__version__
    assert table_of_costs(found).rows[0] == [
        "cpu", "1", "2", "bf16", "210 ms", "52.6 ms", "4.0\n3.9 to 4.2", "26.3 ms", "50%"
    ]  # fmt: skip
    on_gpu = {"device": "NVIDIA", "runs": 6, "layers": 2, "precision": "fp32", "ours, ms": 1.5, "floor, ms": 1.0}
    rows = table_of_costs({"rows": [row, on_gpu | {"share of matmul peak": 0.67}]}).rows
    assert rows[1] == ["NVIDIA", "6", "2", "fp32", "–", "1.5 ms", "–", "1 ms", "67%"]
    bench.results_path("train").write_text("{}")
    with pytest.raises(BadInput, match="bench_train.json is damaged .*carry bench train --save"):
        bench.saved("train")
