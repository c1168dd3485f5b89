"""One training step as a CUDA graph: compiled, captured once, replayed without the host in between."""

from collections.abc import Callable

import torch
from torch import Tensor

Step = Callable[[Tensor, Tensor, Tensor], dict[str, Tensor]]


class CapturedStep:
    """A step function on static buffers.

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
