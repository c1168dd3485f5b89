"""The benchmarks compare like with like, and count what they say; nothing here is timed."""

import sys

import pytest
import torch

from carry_core import cli, sums
from carry_core.groups import Group
from carry_core.model import ModelConfig, rotate
from carry_core.training import bench


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


def test_rows_of_training(monkeypatch):
    """The ratios are those within a round, and of these the median, the lowest and the highest."""
    flops = bench.step_flops(ModelConfig(layers=1), 1024)
    product = 2 * 1024**3 / flops  # seconds of a 1024 x 1024 product by which the floor is a second
    rounds = {
        "plain": [8.0, 20.0, 3.0],
        "complex": [6.0, 4.0, 9.0],
        "fp32": [2.0, 4.0, 3.0],
        "bf16": [4.0, 2.0, 8.0],
        "matmul fp32": [product, 3 * product, product / 4],
        "matmul bf16": [product, 9 * product, product / 4],
    }
    monkeypatch.setattr(bench, "in_turns", lambda tasks, *_, **__: {name: rounds[name] for name in tasks})
    fp32, bf16 = bench.train(groups=bench.LAYERS[:1])
    shared = {"device": "cpu", "runs": 1, "layers": 1, "plain fp32, ms": 8000.0}
    assert fp32 == shared | {
        "precision": "fp32",
        "ours, ms": 3000.0,
        "ratio": 4.0,
        "ratio, lowest": 1.0,
        "ratio, highest": 5.0,
        "ratio to complex rotary": 3.0,
        "floor, ms": 1000.0,
        "share of matmul peak": 0.33,
    }
    assert (bf16["precision"], bf16["ours, ms"], bf16["ratio"]) == ("bf16", 4000.0, 2.0)


def test_tasks_take_turns():
    called = []
    tasks = {name: lambda name=name: called.append(name) for name in ("a", "b")}
    seconds = bench.in_turns(tasks, rounds=3, threads=1)
    assert {name: len(times) for name, times in seconds.items()} == {"a": 3, "b": 3}
    assert [name for name, before in zip(called, ["", *called], strict=False) if name != before] == ["a", "b"] * 3
    assert min(min(times) for times in seconds.values()) > 0


def test_rows_of_the_ledger(monkeypatch):
    monkeypatch.setattr(bench, "in_turns", lambda *_: {"apart": [9.0, 8.0, 3.0], "shared": [2.0, 4.0, 1.0]})
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


def test_what_is_saved_is_what_the_book_shows(data):
    assert bench.saved("train") is None
    bench.save("train", [{"device": "cpu"}])
    saved = bench.saved("train")
    assert (saved["rows"], saved["torch"]) == ([{"device": "cpu"}], torch.__version__)
    assert f"On {bench.processor()}" in bench.told(saved)


@pytest.mark.parametrize(("on_gpu", "said"), [(False, True), (True, False)])
def test_a_gpu_that_is_not_there_is_said_to_be_not_measured(monkeypatch, capsys, on_gpu, said):
    monkeypatch.setattr(sys, "argv", ["carry", "bench", "train"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: on_gpu)
    monkeypatch.setattr(bench, "train", lambda device="cpu", *_: [{"device": device}])
    cli.main()
    shown = capsys.readouterr().out
    assert ("On a GPU: not measured" in shown) == said
    assert ("cuda" in shown) == on_gpu
