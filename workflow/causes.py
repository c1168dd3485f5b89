"""Print the experiments behind the sentences `why` of `data/claims.yml` (`findings/causes.py`)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pandas as pd
import torch

from carry_core import measure
from carry_core.errors import BadInput
from carry_core.model import Transformer
from carry_core.sums import Numbers
from carry_paper import catalogue
from carry_paper.findings import base, causes
from carry_paper.findings.base import Fields
from carry_paper.findings.survey import random_sums

Experiment = Callable[[Transformer, Numbers, Numbers], Fields]


class Part(NamedTuple):
    """An experiment, the rows that it is about, its groups, and the sums on which it is done."""

    rows: str
    experiment: Experiment
    groups: tuple[str, ...]
    sums: Callable[[], tuple[Numbers, Numbers]]


def of_all_classes() -> tuple[Numbers, Numbers]:
    return measure.sample(2_000, 3, seed=0)


PARTS = (
    Part(
        "n2_w0/runs_full_mlp_ablation_works, finding/wide_mlp, tab3/final_mlp/C_all_con",
        causes.without_final_mlp,
        (base.W0, base.S01, base.DFF1024, base.N3),
        of_all_classes,
    ),
    Part(
        "finding/three_layers_heads",
        causes.costliest_heads,
        (base.N3,),
        lambda: random_sums(3, 6_000),
    ),
    Part(
        "finding/decoder, finding/decoder_mlp",
        causes.decision_head_line,
        (base.DECODER,),
        of_all_classes,
    ),
    Part("finding/carry_axis", causes.carry_on_axes, (base.MAIN, base.DFF512), random_sums),
    Part(
        "finding/carry_axis_long, finding/carry_axis_finetuned",
        causes.carry_on_axes,
        (base.PRIMED, base.FINETUNED),
        lambda: random_sums(6, 5_000),
    ),
    Part(
        "finding/carry_axis_long on three-digit sums, at the trained positions",
        lambda model, a, b: causes.carry_on_axes(model, a, b, 3),
        (base.PRIMED, base.FINETUNED),
        lambda: random_sums(3, 5_000),
    ),
)


def main() -> None:
    torch.set_num_threads(1)
    for part in PARTS:
        a, b = part.sums()
        for group in part.groups:
            print(f"\n{part.rows}: {group}")
            rows = {}
            for label, loaded in sets_of_runs(group).items():
                for run, model in loaded.models():
                    rows[label, run] = dict(part.experiment(model, a, b))
            table = pd.DataFrame.from_dict(rows, orient="index")
            print(table.round(3).to_string())


def sets_of_runs(group: str) -> dict[str, catalogue.GroupRuns]:
    """Return the first six runs of a group by each recipe, and the author's, where they are."""
    choices: dict[str, dict[str, Any]] = {
        "author": {"source": "author"},
        "paper": {"recipe": "paper"},
        "quick": {"recipe": "quick"},
    }
    loaded = {}
    for label, choice in choices.items():
        try:
            loaded[label] = catalogue.load(group, **choice)
        except BadInput as error:
            print(f"{label}: {error}")
    return loaded


if __name__ == "__main__":
    main()
