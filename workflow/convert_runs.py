"""Convert what earlier versions wrote into a pair of files a run (`carry_core.runs`).

    convert_runs.py OUT FILE...

Each FILE is a group file of `data/runs` or `data/author` (`<group>.safetensors`, its `<group>.history.npz` beside it),
or the checkpoint of a finished run. The pairs are written to OUT/<group>/<recipe>/, those of the author's release to
OUT/<group>/. FILEs stay as they are.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from torch import Tensor

from carry_core import groups, runs
from carry_core.errors import BadInput
from carry_core.training.checkpoints import write_run


def read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Metadata and tensors."""
    with safe_open(path, "pt") as file:
        return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def convert_group(path: Path, out: Path) -> list[Path]:
    """A group file and its learning curves; runs that have only these become a file of curves alone."""
    about, tensors = read(path)
    found = json.loads(about["carry"])
    group, record = groups.find(found["group"]), found["record"]
    history = path.with_name(f"{path.stem}.history.npz")
    curves: dict[str, Any] = dict(np.load(history)) if history.exists() else {"runs": np.array([], int)}
    by_run = {run: i for i, run in enumerate(curves.pop("runs").tolist())}
    author = record["recipe"] == "author"
    folder = out / group.name if author else out / group.name / record["recipe"]
    written = []
    for i, entry in enumerate(record["runs"]):
        own = {key: curve[by_run[entry["run"]]] for key, curve in curves.items()} if entry["run"] in by_run else None
        weights = {name: p[i] for name, p in tensors.items()}
        full = {"recipe": record["recipe"], "epochs": record["epochs"], **entry}
        written.append(folder / f"run{entry['run']}.safetensors")
        runs.save(written[-1], group.name, group.config, weights, full, own)
    return written


def convert_checkpoint(path: Path, out: Path) -> list[Path]:
    """The checkpoint of a run that has all epochs of its recipe, with its snapshots, which lie beside it."""
    about, tensors = read(path)
    record = json.loads(about["record"])
    group, recipe = groups.find(record["group"]), groups.RECIPES[record["recipe"]]
    if record["epoch"] < recipe.epochs(group):
        raise BadInput(f"{path} has {record['epoch']} of {recipe.epochs(group)} epochs: expected a finished run.")
    states = {"": (tensors, record)}
    for epoch, papers in recipe.snapshots(group).items():
        early, earlier = read(path.with_name(f"{path.stem}.epoch{epoch}.safetensors"))
        states[f"epoch_{papers}/"] = (earlier, json.loads(early["record"]))
    return [write_run(group, states, out)]


def main(out: Path, files: list[Path]) -> None:
    for path in files:
        convert = convert_group if "carry" in read(path)[0] else convert_checkpoint
        for written in convert(path, out):
            print(written)


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
