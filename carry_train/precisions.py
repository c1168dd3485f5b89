"""The precisions in which a run can be trained: a number format, and an implementation of the step.

    torch-fp32, torch-tf32, torch-bf16   PyTorch, the reference; tf32 is a GPU's
    fused-fp32, fused-bf16               C++, on a CPU (`fused`)
    triton-bf16                          Triton, on a GPU (`gpu`)

The format is that of the operands of matrix products. Weights, sums, norms, softmax, loss and the
optimiser's state are in float32 in all of them.
"""

from dataclasses import dataclass

from carry_core.errors import BadInput

TORCH, FUSED, TRITON = "torch", "fused", "triton"
FORMATS = ("fp32", "tf32", "bf16")
AUTO = "auto"  # the fastest format for a group on the machine at hand
Request = tuple["Precision", ...]  # the precisions that are asked for, the preferred one first


@dataclass(frozen=True)
class Precision:
    """A number format and an implementation: `fused-fp32` is fp32 by the fused step."""

    implementation: str
    format: str

    def __str__(self) -> str:
        return f"{self.implementation}-{self.format}"


TORCH_FP32, TORCH_TF32, TORCH_BF16 = (Precision(TORCH, format) for format in FORMATS)
FUSED_FP32, FUSED_BF16 = Precision(FUSED, "fp32"), Precision(FUSED, "bf16")
TRITON_BF16 = Precision(TRITON, "bf16")
ALL = (FUSED_FP32, FUSED_BF16, TRITON_BF16, TORCH_FP32, TORCH_TF32, TORCH_BF16)
NAMES = {str(precision): precision for precision in ALL}
# Names in older records and commands: each implementation but PyTorch's had one format only, and
# PyTorch's had no name.
RENAMED = {FUSED: FUSED_BF16, TRITON: TRITON_BF16}
OLD_NAMES = RENAMED | {
    precision.format: precision for precision in (TORCH_FP32, TORCH_TF32, TORCH_BF16)
}


def named(name: str) -> Precision:
    """Return the precision that a run's record names; raise `BadInput` for an unknown one."""
    precision = NAMES.get(name) or OLD_NAMES.get(name)
    if precision is None:
        raise BadInput(f"A run was trained in {name!r}: expected one of {', '.join(NAMES)}.")
    return precision


# What `--precision` takes, and `PRECISION` of `make train`; a cell's is not chosen by speed.
EXCEPT_AUTO = {
    **{format: tuple(p for p in ALL if p.format == format) for format in FORMATS},
    **{name: (precision,) for name, precision in (NAMES | RENAMED).items()},
}
REQUESTS = EXCEPT_AUTO | {AUTO: ALL}
