"""A reproducible companion to *Carrying over Algorithm in Transformers*: model, data, ablations, measurements.

The names below are the front door, which notebooks use; each is imported when it is first asked for.
"""

from importlib import import_module
from typing import Any

HOMES = {
    "load": "runs",
    "Transformer": "model",
    "ModelConfig": "model",
    "Ablation": "interventions",
    "MeanAblation": "interventions",
    "Patch": "interventions",
    "accuracy": "measure",
    "activations": "measure",
    "attention": "measure",
    "sample": "measure",
    "all_sums": "sums",
    "encode": "sums",
}


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'carry_core' has no attribute {name!r}")
    return getattr(import_module(f"carry_core.{HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *HOMES])
