"""What makes a training step fast on a GPU: its forward compiled, the whole of it captured once and replayed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor

Step = Callable[[Tensor, Tensor, Tensor], dict[str, Tensor]]


def compiled_apart(method: Any, **options: Any) -> Any:
    """`torch.compile(method, **options)` that shares nothing with other objects of the class.

    What is compiled is kept, and counted against a limit of eight, by code object: twelve trainers of different shapes
    would be too many for one. So each gets a copy of the code, and what was compiled for it lives as long as it does,
    which `torch.compiler.reset` between them would not grant to graphs that are still replayed.
    """
    function = method.__func__
    copy = FunctionType(
        function.__code__.replace(),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return torch.compile(MethodType(copy, method.__self__), **options)


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Whether float32 products on a GPU may use TF32 in here; the setting is the process's, and is put back."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


class CapturedStep:
    """A step function on static buffers, captured as a CUDA graph and replayed without the host in between.

    A short last batch is filled up with sums of weight zero, so that one graph serves all batches.

    Args:
        step: takes a, b `[run, batch]` and weights `[batch]`, changes `state` in place, returns metrics.
        state: every tensor that the step changes; capturing leaves them as they were.
        runs: runs in the stack.
        batch: sums per run in a full batch.
    """

    WARM_UP = 3  # steps before capturing: compiling, autotuning and allocating happen in these

    def __init__(self, step: Step, state: list[Tensor], runs: int, batch: int, device: torch.device) -> None:
        self.a, self.b = (torch.zeros(runs, batch, dtype=torch.int64, device=device) for _ in range(2))
        self.weight = torch.ones(batch, device=device)
        before = [tensor.detach().clone() for tensor in state]
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for _ in range(self.WARM_UP):
                step(self.a, self.b, self.weight)
        torch.cuda.current_stream(device).wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.metrics = step(self.a, self.b, self.weight)
        with torch.no_grad():
            for tensor, old in zip(state, before, strict=True):
                tensor.copy_(old)

    def __call__(self, a: Tensor, b: Tensor) -> dict[str, Tensor]:
        """Replay the step on a batch; the metrics it returns are overwritten by the next one."""
        count = a.shape[1]
        self.a[:, :count].copy_(a)
        self.b[:, :count].copy_(b)
        if count < self.weight.shape[0]:
            self.a[:, count:].zero_()
            self.b[:, count:].zero_()
        self.weight[:count] = 1
        self.weight[count:] = 0
        self.graph.replay()
        return self.metrics
