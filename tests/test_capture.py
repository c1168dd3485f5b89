"""The forward as a GPU compiles it, traced on the CPU: one graph, real numbers only, the same loss and gradients."""

import pytest
import torch
from torch._dynamo import lookup_backend

from carry_core.groups import Group
from carry_core.model import ModelConfig
from carry_core.training.dropout import CounterMasks
from carry_core.training.recipes import Recipe
from carry_core.training.trainer import Seeds, Trainer, compiled_apart, tf32
from tests.conftest import SHAPES

pytestmark = pytest.mark.usefixtures("unchecked")


def trainer_of(config: ModelConfig, precision: str = "fp32") -> Trainer:
    """Two runs, with the dropout masks of a GPU."""
    trainer = Trainer(Group("small", config, n_digits=2, batch=64), Recipe("paper", 1e-3), [0, 1], precision=precision)
    trainer.masks = CounterMasks([Seeds.of(run).dropout for run in (0, 1)], torch.device("cpu"))
    trainer.counter.fill_(7)
    return trainer


def scored(trainer, forward):
    """Loss and accuracies of a filled-up batch, and the gradients of the loss."""
    a, b = (part.long() for part in trainer.batches(trainer.train, 64)[0])
    row = forward(a, b, (torch.arange(64) < 50).float())
    return {k: v.detach() for k, v in row.items()}, torch.autograd.grad(row["loss"].sum(), trainer.parameters.values())


class Seen:
    """A backend that keeps the graphs that it is given, then runs them by another one."""

    def __init__(self, name: str) -> None:
        self.graphs, self.then = [], lookup_backend(name)

    def __call__(self, graph, inputs):
        self.graphs.append(graph)
        return self.then(graph, inputs)


@pytest.mark.parametrize("which", ["one layer", "decoder"])
def test_the_compiled_forward_is_the_eager_one(which):
    trainer, backend = trainer_of(SHAPES[which]), Seen("aot_eager")
    forward = compiled_apart(trainer.score_batch, dynamic=False, fullgraph=True, backend=backend)
    (row, gradients), (expected, exact) = scored(trainer, forward), scored(trainer, trainer.score_batch)
    (graph,) = backend.graphs
    values = [node.meta.get("example_value") for node in graph.graph.nodes]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    assert len(tensors) > 100
    assert not any(tensor.is_complex() for tensor in tensors)
    torch.testing.assert_close(row, expected, rtol=1e-5, atol=1e-6)
    for name, found, gradient in zip(trainer.parameters, gradients, exact, strict=True):
        torch.testing.assert_close(found, gradient, rtol=1e-4, atol=1e-6, msg=name)
    trainer.counter.fill_(8)
    assert scored(trainer, forward)[0]["loss"].tolist() != row["loss"].tolist()  # masks of the next step


def test_a_trainers_precision_is_its_own(monkeypatch):
    """Steps and tests see their trainer's setting whatever was made in between, and the process keeps its own."""
    first, second = trainer_of(SHAPES["encoder"], "tf32"), trainer_of(SHAPES["encoder"])
    seen = []
    for trainer in (first, second):
        for name in ("score_batch", "mean_score"):
            monkeypatch.setattr(trainer, name, watched(getattr(trainer, name), seen))
        trainer.forward = trainer.score_batch
    for process in (False, True):
        with tf32(process):
            for trainer in (first, second):
                seen.clear()
                trainer.run_epoch()
                assert len(seen) == trainer.group.steps + 1
                assert set(seen) == {trainer is first}
            assert torch.backends.cuda.matmul.allow_tf32 == process


def watched(function, seen):
    def watching(*arguments):
        seen.append(torch.backends.cuda.matmul.allow_tf32)
        return function(*arguments)

    return watching


def test_a_batch_that_is_filled_up_counts_its_own_sums_alone(small_group):
    """The short last batch, as a GPU's graph takes it, has the loss, accuracies and gradients that it has by itself."""
    short, filled = (Trainer(small_group, Recipe("quick", 1e-3), [0, 1]) for _ in range(2))
    for trainer in (short, filled):
        trainer.masks = None  # no dropout: masks of another shape are others
    a, b = short.batches(short.train, small_group.batch)[-1]
    free = small_group.batch - a.shape[1]
    assert 0 < free < small_group.batch
    weight = (torch.arange(small_group.batch) < a.shape[1]).float()
    by_itself = short.eager_step(a, b)
    found = filled.eager_step(*(torch.nn.functional.pad(x.long(), (0, free), value=7) for x in (a, b)), weight)
    assert found.keys() == by_itself.keys()
    for name, value in by_itself.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6, msg=name)
    for name, p in short.parameters.items():
        torch.testing.assert_close(filled.parameters[name].grad, p.grad, rtol=1e-4, atol=1e-6, msg=name)
