"""Write groups of runs as folders that a model hub accepts, into `_build/hub/<group>`.

A folder has a card, a loader in plain PyTorch, checksums, and for each run its weights at the end
of the training, as they are stored, and their config. `catalogue.load` takes such a folder, too.
"""

import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from safetensors import safe_open

from carry_core import runs
from carry_core.errors import BadInput
from carry_core.files import ROOT
from carry_core.model import parameter_shapes
from carry_core.sums import SYMBOLS
from carry_paper import catalogue
from carry_paper.ledger import ledger
from carry_paper.ledger.report import counted
from carry_train import groups
from carry_train.files import json_bytes, save_run, sha256
from carry_train.groups import Group

OUT = ROOT / "_build" / "hub"
SOURCES = ROOT / "workflow" / "weights"
LOADER = "modeling_carry.py"
SUMS = "SHA256SUMS"
EXAMPLE = (158, 265)


def write(name: str, out: Path = OUT) -> Path:
    """Write the folder of a group's leading runs anew; raise `BadInput` if there are none."""
    trained = catalogue.leading(name)
    if not trained:
        raise catalogue.missing("weights", name, "ours")
    group = groups.find(name)
    folder = out / group.name
    shutil.rmtree(folder, ignore_errors=True)
    for number, run in trained.items():
        write_run(folder / f"run{number}", run, group)
    shutil.copy(ROOT / "LICENSE", folder)
    shutil.copy(SOURCES / LOADER, folder)
    records = [run.record for run in trained.values()]
    (folder / "README.md").write_text(card(group, records), encoding="utf-8")
    lines = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        lines.append(f"{sha256(path)}  {path.relative_to(folder).as_posix()}\n")
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")
    return folder


def write_run(folder: Path, run: runs.TrainedRun, group: Group) -> None:
    """Write a run's weights and its config, each with the record of its training.

    The record names no snapshots, since those are left out.
    """
    with safe_open(run.path, "pt") as file:
        weights = {name: file.get_tensor(name) for name in parameter_shapes(group.config)}
    record = {name: value for name, value in run.record.items() if name != "snapshots"}
    save_run(folder / "model.safetensors", group, weights, record)
    config = {
        "architectures": ["CarryTransformer"],
        "model_type": "carry",
        **asdict(group.config),
        "vocabulary": SYMBOLS,
        "training": record,
    }
    (folder / "config.json").write_bytes(json_bytes(config))


def card(group: Group, records: Sequence[dict[str, Any]]) -> str:
    """Return the text of the card; its numbers are from the records, curves and the ledger."""
    config = group.config
    recipe = groups.RECIPES[records[0]["recipe"]]
    history = catalogue.load_curves(group.name)
    a, b = EXAMPLE
    jinja = Environment(
        loader=FileSystemLoader(SOURCES),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        autoescape=False,
    )
    jinja.filters["zip"] = zip
    return jinja.get_template("card.md.j2").render(
        group=group,
        config=config,
        records=records,
        recipe=recipe,
        planned_epochs=recipe.planned_epochs(group),
        n_parameters=sum(shape.numel() for shape in parameter_shapes(config).values()),
        example=f"{a:0{config.width}}+{b:0{config.width}}",
        right=f"{a + b:0{config.width}}",
        exact_matches=last_values(history["test_whole"]),
        longer=last_values(history["long_whole"]) if "long_whole" in history else [],
        verdicts=verdicts(group.name),
    )


def last_values(curve: runs.History | Any) -> list[float]:
    """Return the last value of each run's curve `[run, row]`."""
    return [float(values[np.isfinite(values)][-1]) for values in curve]


def verdicts(group: str) -> str:
    """Return the verdicts on the ledger's rows that are about this group alone, counted."""
    rows = ledger.by_id("ours").values()
    counts = Counter(row.verdict for row in rows if row.groups == [group])
    return ", ".join(counted(n, verdict) for verdict, n in counts.most_common())


def main(names: Sequence[str]) -> int:
    """Write the folders of these groups, or of all that have weights; return 2 for bad input."""
    shipped = [name for name in groups.GROUPS if catalogue.find(name)]
    try:
        for name in names or shipped:
            print(write(name).relative_to(ROOT))
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
