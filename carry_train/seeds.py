"""Seeds of a run: its random streams come from its number, or from seeds that a user sets."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.random import SeedSequence

from carry_core.errors import BadInput
from carry_core.files import damaged
from carry_core.runs import REMEDY, check_count
from carry_train.groups import Group

# Each of these children of a number's `SeedSequence` seeds one stream.
SPLIT, WEIGHTS, DROPOUT, ORDER, ROUNDING = range(5)
MOST_SEED = 2**63 - 1
NAMES = ("split", "init", "order", "mask", "rounding")  # as in `--init-seed`, and in a record
OF_WEIGHTS = ("init", "rounding")  # the seeds of what a finetuned run takes from its parent
Recorded = dict[str, Any]


class Streams(NamedTuple):
    """Independent random streams of one run.

    Attributes:
        split: The training and test sums, their order, and the longer sums.
        weights: The initial weights.
        dropout: The dropout masks.
        order: A permutation of the training sums; None leaves them as they are.
        rounding: The weights that are moved by one rounding unit; None moves none.
    """

    split: torch.Generator
    weights: torch.Generator
    dropout: SeedSequence
    order: torch.Generator | None
    rounding: torch.Generator | None


@dataclass(frozen=True)
class Seeds:
    """Seeds that are given to runs; None stands for a run's own number.

    All runs with `init` 3 start from the initial weights of run 3, runs with `mask` 3 have its
    dropout masks, and runs with `split` 3 its training and test sums, in its order. With `order`,
    the training sums of a run are permuted, by a stream that nothing else uses. With `rounding`,
    one weight of each matrix is moved to the next number (`trainer.round_otherwise`).
    """

    init: int | None = None
    order: int | None = None
    mask: int | None = None
    split: int | None = None
    rounding: int | None = None

    def streams(self, run: int) -> Streams:
        """Return the random streams of a run."""
        seeds = self.record(run)
        return Streams(
            split=_generator(seeds["split"], SPLIT),
            weights=_generator(seeds["init"], WEIGHTS),
            dropout=_child(seeds["mask"], DROPOUT),
            order=None if self.order is None else _generator(self.order, ORDER),
            rounding=None if self.rounding is None else _generator(self.rounding, ROUNDING),
        )

    def record(self, run: int) -> Recorded:
        """Return the seeds by name, as in a run's record; `order` None permutes nothing.

        `rounding` is among them only if it is set.
        """
        seeds = {
            "split": run if self.split is None else self.split,
            "init": run if self.init is None else self.init,
            "order": self.order,
            "mask": run if self.mask is None else self.mask,
        }
        return seeds if self.rounding is None else {**seeds, "rounding": self.rounding}

    def check_group(self, group: Group) -> None:
        """Raise `BadInput` if a seed of initial weights is set for a finetuned group."""
        for name in OF_WEIGHTS:
            seed = getattr(self, name)
            if group.parent is not None and seed is not None:
                raise BadInput(
                    f"--{name}-seed {seed}: {group.name} starts from the weights of "
                    f"{group.parent[0]}, which it does not change: drop it, or leave this group "
                    "out."
                )

    def check_run(self, group: Group, record: dict[str, Any], path: Path) -> None:
        """Raise `BadInput` if a run in `path`, finished or not, has other seeds or damaged ones."""
        try:
            check_seeds(record.get("seeds", {}))
        except ValueError as error:
            raise damaged(path, str(error), REMEDY) from error
        run = record["run"]
        before = recorded(record)
        # A finetuned run has no initial weights of its own.
        of_parent = OF_WEIGHTS if group.parent is not None else ()
        names = [name for name in NAMES if name not in of_parent]
        requested = self.record(run)
        default = OWN.record(run)
        if all(before.get(name) == requested.get(name) for name in names):
            return
        set_by_hand = [name for name in names if before.get(name) != default.get(name)]
        options = " ".join(f"--{name}-seed {before.get(name)}" for name in set_by_hand)
        raise BadInput(
            f"Run {run} of {group.name} has other seeds ({path}): "
            f"pass {options or 'no seeds'} to go on with it, choose other runs with --runs, "
            "or another data folder with CARRY_DATA."
        )


OWN = Seeds()


def recorded(record: dict[str, Any]) -> Recorded:
    """Return the seeds of a run with this record; its number, if the record is too old for them.

    Records with three seeds are of runs whose split comes from their number, too.
    """
    run = record["run"]
    seeds = record.get("seeds")
    return {"split": run, **seeds} if seeds else OWN.record(run)


def check_seeds(seeds: object) -> None:
    """Raise `ValueError` unless these are seeds by name; `parent` has those of a parent run."""
    if not isinstance(seeds, dict):
        raise ValueError("its seeds are no object")
    for name, seed in seeds.items():
        if name == "parent":
            check_seeds(seed)
        elif seed is not None:
            check_count(f"seeds.{name}", seed, 0)


def _child(number: int, use: int) -> SeedSequence:
    """Return one of the sequences that `SeedSequence(number).spawn` returns."""
    return SeedSequence(number, spawn_key=(use,))


def _generator(number: int, use: int) -> torch.Generator:
    seed = int(_child(number, use).generate_state(1, np.uint64)[0] >> np.uint64(1))
    return torch.Generator().manual_seed(seed)
