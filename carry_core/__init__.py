"""A reproducible companion to *Carrying over Algorithm in Transformers*: model, data, ablations, measurements.

The names below are the front door, which notebooks use; each is imported when it is first asked
for.
"""

from importlib import import_module
from typing import Any

EXPORTS = {
    "runs": ["load"],
    "model": ["Transformer", "ModelConfig"],
    "interventions": ["Ablation", "MeanAblation", "Patch"],
    "measure": ["accuracy", "activations", "attention", "sample"],
    "sums": ["all_sums", "encode"],
}
HOMES = {name: module for module, names in EXPORTS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'carry_core' has no attribute {name!r}")
    return getattr(import_module(f"carry_core.{HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *HOMES])
