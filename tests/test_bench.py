"""The benchmarks compare like with like, and count what they say; nothing here is timed."""

import pandas as pd
import torch

from carry_core import sums
from carry_core.groups import Group
from carry_core.training import bench


def test_the_baseline_is_the_same_model(config):
    torch.manual_seed(0)
    plain = bench.Plain(Group("small", config))
    a, b = sums.long_sums(5, config.width, torch.Generator().manual_seed(0))
    tokens = sums.encode(a, b, config.layout)
    torch.testing.assert_close(plain.logits(tokens, 0.0), plain.model(tokens), rtol=1e-4, atol=1e-5)


def test_rows_of_training(monkeypatch):
    """The ratios are those within a round, and of these the median, the lowest and the highest."""
    rounds = {"plain": [8.0, 20.0, 3.0], "fp32": [2.0, 4.0, 3.0], "bf16": [4.0, 2.0, 8.0]}
    monkeypatch.setattr(bench, "in_turns", lambda tasks, *_, **__: pd.DataFrame({name: rounds[name] for name in tasks}))
    fp32, bf16 = bench.train(groups=bench.LAYERS[:1])
    shared = {"device": "cpu", "runs": 1, "layers": 1, "plain fp32, ms": 8000.0}
    assert fp32 == shared | {
        "precision": "fp32",
        "ours, ms": 3000.0,
        "ratio": 4.0,
        "ratio, lowest": 1.0,
        "ratio, highest": 5.0,
    }
    assert (bf16["precision"], bf16["ours, ms"], bf16["ratio"]) == ("bf16", 4000.0, 2.0)


def test_tasks_take_turns():
    called = []
    tasks = {name: lambda name=name: called.append(name) for name in ("a", "b")}
    seconds = bench.in_turns(tasks, rounds=3, threads=1)
    assert seconds.shape == (3, 2)
    assert [name for name, before in zip(called, ["", *called], strict=False) if name != before] == ["a", "b"] * 3
    assert (seconds > 0).all(axis=None)


def test_rows_of_the_ledger(monkeypatch):
    monkeypatch.setattr(
        bench, "in_turns", lambda *_: pd.DataFrame({"apart": [9.0, 8.0, 3.0], "shared": [2.0, 4.0, 1.0]})
    )
    (row,) = bench.claims(n_sums=64)
    assert row == {
        "passes": 4,
        "sums": 64,
        "threads": torch.get_num_threads(),
        "apart, s": 8.0,
        "shared, s": 2.0,
        "ratio": 3.0,
        "ratio, lowest": 2.0,
        "ratio, highest": 4.5,
    }


def test_the_gpus_benchmark_runs(small_group):
    """On the CPU here: what is measured is the trainer's own step, of so many runs in lockstep."""
    rows = bench.train("cpu:0", [small_group], runs=2, rounds=1)
    assert [(row["precision"], row["runs"]) for row in rows] == [("fp32", 2), ("bf16", 2)]
    for row in rows:
        assert row["ours, ms"] > 0
        assert "ratio" not in row
