"""Whole epochs of the trainer against a plain loop: which step comes when, at which rate, and what is written down."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from carry_core.training.recipes import Recipe
from carry_core.training.trainer import Trainer

RUNS = [0, 2]
RECIPE = Recipe("quick", 2e-3, warmup=9)  # six steps an epoch: it ends in the middle of the second


def plain_loop(trainer: Trainer, epochs: int) -> dict[str, list[np.ndarray]]:
    """Train by PyTorch's AdamW, with the trainer's forward pass and none of its loop; the means over each epoch."""
    fixed = {"betas": (0.9, 0.98), "eps": 1e-8, "weight_decay": trainer.group.decay}
    # Other orders of adding up than the fused one would move what has hardly a gradient, such as the keys' biases.
    optimiser = torch.optim.AdamW(trainer.parameters.values(), lr=RECIPE.rate, fused=True, **fixed)
    count, size = trainer.train.shape[2], trainer.group.batch
    means: dict[str, list[np.ndarray]] = {"loss": [], "accuracy": [], "whole": []}
    done = 0
    for _ in range(epochs):
        rows = []
        for start in range(0, count, size):
            a, b = trainer.train[:, 0, start : start + size], trainer.train[:, 1, start : start + size]
            optimiser.param_groups[0]["lr"] = float(np.float32(RECIPE.rate * min(done + 1, 9) / 9))
            logits = trainer.stack.logits(trainer.parameters, trainer.stack.pairs.rows(a, b), trainer.masks)
            row = trainer.score(logits, trainer.targets(a, b))
            optimiser.zero_grad()
            row["loss"].sum().backward()
            optimiser.step()
            rows.append({key: value.detach().numpy() for key, value in row.items()})
            done += 1
        for key, kept in means.items():
            kept.append(np.mean([row[key] for row in rows], axis=0))
    assert done == 12
    return means


@pytest.mark.parametrize("decay", [0.0, 1.0])
def test_two_epochs_are_a_plain_loop(small_group, decay):
    """The warm-up goes on over the epoch's end, the last batch is short, and every batch counts alike in the means."""
    group = replace(small_group, decay=decay)
    trainer, other = (Trainer(group, RECIPE, RUNS) for _ in range(2))
    before = {name: p.detach().clone() for name, p in other.parameters.items()}
    assert (group.steps, trainer.train.shape[2] % group.batch) == (6, 235)
    for _ in range(2):
        trainer.run_epoch()
    expected = plain_loop(other, 2)
    for name, p in other.parameters.items():
        torch.testing.assert_close(trainer.parameters[name], p, rtol=1e-6, atol=1e-7, msg=name)
        assert (p - before[name]).abs().max() > 1e-3
    for key, means in expected.items():
        np.testing.assert_allclose(trainer.history[f"train_{key}"], means, rtol=1e-5, atol=1e-6)
        assert not np.allclose(means[0], means[1], rtol=1e-4)
    assert all(state["step"] == 12 for state in trainer.optimiser.state.values())
    assert trainer.epoch == 2
