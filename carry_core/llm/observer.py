"""What is read off a language model while it generates: attention cells and the residual stream, nothing else kept.

A forward hook on each attention takes the few cells that are wanted from its probabilities, which are then dropped, so
that never more than one layer's attention is in memory.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from carry_core.errors import BadInput
from carry_core.llm.architecture import Size, blocks

OUTPUTS = 5  # positions of the answer at which the stream is kept: a four-digit sum has five digits at most


class Observer:
    """Reads `cells` of every head, and the stream where the first tokens of the answer are predicted.

    Args:
        model: a causal language model that computes its attention eagerly.
        rows: query positions in the left-padded batch.
        columns: key positions.
        length: tokens of the padded prompts; a row below it is a prompt's, the others are generated tokens.
    """

    def __init__(
        self,
        model: Any,
        rows: Int[Tensor, "batch cell"],
        columns: Int[Tensor, "batch cell"],
        length: int,
    ) -> None:
        self.model, self.rows, self.columns, self.length = model, rows, columns, length
        size = Size.of(model.config)
        batch, cells = rows.shape
        self.attention = torch.zeros(batch, size.layers, size.heads, cells)
        self.stream = torch.full((OUTPUTS, size.layers, 2, batch, size.width), float("nan"), dtype=model.dtype)
        self.seen = torch.zeros(batch, cells, dtype=torch.bool)

    @contextmanager
    def watching(self) -> Iterator["Observer"]:
        """Read whatever the model computes inside."""
        handles = []
        for layer, block in enumerate(blocks(self.model)):
            handles += [
                block.attention.register_forward_hook(self._attention(layer)),
                block.norm.register_forward_pre_hook(self._middle(layer)),
                block.whole.register_forward_hook(self._end(layer)),
            ]
        try:
            yield self
        finally:
            for handle in handles:
                handle.remove()

    def _attention(self, layer: int) -> Any:
        def read(module: nn.Module, args: Any, output: tuple[Tensor, Tensor | None]) -> None:
            weights = output[1]
            if weights is None:
                raise BadInput("The model gives no attention probabilities: expected attn_implementation='eager'.")
            queries, keys = weights.shape[-2:]
            start = keys - queries
            self.step = keys - self.length
            here = ((self.rows >= max(start, self.length if start else 0)) & (self.rows < keys)).all(0)
            if not here.any():
                return
            rows, columns = self.rows[:, here] - start, self.columns[:, here]
            which = torch.arange(len(rows)).unsqueeze(1)
            # advanced indices around a slice: [batch, cell, head]
            found = weights[which.to(weights.device), :, rows.to(weights.device), columns.to(weights.device)]
            self.attention[:, layer, :, here] = found.transpose(1, 2).float().cpu()
            self.seen[:, here] = True

        return read

    def _middle(self, layer: int) -> Any:
        def read(module: nn.Module, args: tuple[Tensor, ...]) -> None:
            self._keep(layer, 0, args[0])

        return read

    def _end(self, layer: int) -> Any:
        def read(module: nn.Module, args: Any, output: Tensor | tuple[Tensor, ...]) -> None:
            self._keep(layer, 1, output if isinstance(output, Tensor) else output[0])

        return read

    def _keep(self, layer: int, after: int, stream: Float[Tensor, "batch pos d_model"]) -> None:
        if self.step < OUTPUTS:
            self.stream[self.step, layer, after] = stream[:, -1].cpu()
