"""The benchmarks compare like with like, and count what they say; nothing here is timed."""

import sys

import pytest
import torch

from carry_core import bench, cli, sums
from carry_core.errors import BadInput
from carry_core.groups import Group
from carry_core.model import ModelConfig, Transformer, rotate
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


def test_bytes_by_counting():
    """One layer, one sum: three rows through the output projection and both matrices of an MLP of width 256."""
    config = ModelConfig(layers=1, d_ff=256)
    square, wide = 3 * 128 + 128 * 128 + 3 * 128, 3 * 128 + 128 * 256 + 3 * 256
    parameters = sum(p.numel() for p in Transformer(config).parameters())
    assert bench.step_bytes(config, 1, 2) == 3 * 2 * (square + 2 * wide) + 28 * parameters


def clock(rounds):
    """A clock by which the tasks of each round take the seconds given; the warm-up reads it once a task."""
    times, now = [0.0] * len(rounds[0]), 0.0
    for seconds in (seconds for each in rounds for seconds in each):
        times += [now, now := now + seconds]
    return iter(times).__next__


def test_rows_of_training():
    """Three rounds: the ratios are those within a round, and of these the median, the lowest and the highest."""
    flops = bench.step_flops(ModelConfig(layers=1), 1024)
    product = 2 * 1024**3 / flops  # seconds of a 1024 x 1024 product by which the floor is a second
    rounds = [  # plain, plain with complex rotary, fp32, bf16, and the two products
        [8.0, 6.0, 2.0, 4.0, product, product],
        [20.0, 4.0, 4.0, 2.0, 3 * product, 9 * product],
        [3.0, 9.0, 3.0, 8.0, product / 4, product / 4],
    ]
    fp32, bf16 = bench.train(layers=(1,), rounds=3, clock=clock(rounds))
    shared = {"device": "cpu", "runs": 1, "layers": 1, "plain fp32, ms": 8000.0}
    assert fp32 == shared | {
        "precision": "fp32", "ours, ms": 3000.0, "ratio": 4.0, "ratio, lowest": 1.0, "ratio, highest": 5.0,
        "ratio to complex rotary": 3.0, "floor, ms": 1000.0, "share of matmul peak": 0.33,
    }  # fmt: skip
    assert bf16 == shared | {
        "precision": "bf16", "ours, ms": 4000.0, "ratio": 2.0, "ratio, lowest": 0.38, "ratio, highest": 10.0,
        "ratio to complex rotary": 1.5, "floor, ms": 1000.0, "share of matmul peak": 0.25,
    }  # fmt: skip


def test_rows_of_the_ledger():
    (row,) = bench.claims(rounds=3, n_sums=64, clock=clock([[9.0, 2.0], [8.0, 4.0], [3.0, 1.0]]))
    assert row == {
        "passes": 4, "sums": 64, "threads": torch.get_num_threads(), "apart, s": 8.0, "shared, s": 2.0,
        "ratio": 3.0, "ratio, lowest": 2.0, "ratio, highest": 4.5,
    }  # fmt: skip


def test_a_benchmark_that_fails_gives_the_threads_back():
    def broken():
        raise KeyboardInterrupt

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(KeyboardInterrupt):
            bench.train(layers=(1,), rounds=1, clock=broken)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("device", "waits"), [("cpu", []), ("cuda", ["cuda"] * 2), ("cuda:1", ["cuda:1"] * 2)])
def test_every_gpu_is_waited_for(monkeypatch, device, waits):
    waited, called = [], []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    assert bench.per_call(called.append, 3, device) > 0
    assert called == [0, 1, 2, 3]
    assert waited == waits


def test_the_gpus_benchmark_runs(small_group):
    """On the CPU here: what is measured is the trainer's own step, of so many runs."""
    rows = bench.train_stacked(small_group, runs=2, device="cpu", steps=1)
    assert [row["precision"] for row in rows] == ["fp32", "bf16"]
    for row in rows:
        assert row["runs"] == 2
        assert row["ours, ms"] > 0
        assert row["device"].startswith("cpu")
        floors = {"operations": row["floor, ms"]} | {n: row[f"floor of {n}, ms"] for n in ("bytes", "launches")}
        assert floors["launches"] == 0 < min(floors["operations"], floors["bytes"])  # nothing is launched here
        assert row["binds"] == max(floors, key=floors.get)


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
    floors = {"floor of bytes, ms": 0.5, "floor of launches, ms": 1.2, "binds": "launches"}
    rows = table_of_costs({"rows": [on_gpu | floors | {"share of matmul peak": 0.67}]}).rows
    assert rows[0][7] == "1.2 ms (launches)\n1 ms (operations)\n0.5 ms (bytes)"
    bench.save("train", [{"device": "cpu"}])
    with pytest.raises(BadInput, match="a row lacks floor, ms, layers, ours, ms"):
        bench.saved("train")
    bench.results_path("train").write_text("{}")
    with pytest.raises(BadInput, match="bench_train.json is damaged .*carry bench train --save"):
        bench.saved("train")


@pytest.mark.parametrize(("on_gpu", "said"), [(False, True), (True, False)])
def test_a_gpu_that_is_not_there_is_said_to_be_not_measured(monkeypatch, capsys, on_gpu, said):
    monkeypatch.setattr(sys, "argv", ["carry", "bench", "train"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: on_gpu)
    monkeypatch.setattr(bench, "train", lambda: [{"device": "cpu"}])
    monkeypatch.setattr(bench, "train_stacked", lambda: [{"device": "NVIDIA"}])
    cli.main()
    shown = capsys.readouterr().out
    assert ("On a GPU: not measured" in shown) == said
    assert ("NVIDIA" in shown) == on_gpu
