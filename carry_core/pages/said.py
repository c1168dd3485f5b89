"""What the pages say of what was measured in many runs, as sentences: of longer sums."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
from jaxtyping import Float
from torch import Tensor

from carry_core import findings
from carry_core.findings import geometry, lengths
from carry_core.findings.base import Fields
from carry_core.findings.lengths import Heads, Separation
from carry_core.interventions import INTACT, Ablation
from carry_core.measure import ClassAccuracies
from carry_core.plots.style import counted


def heads(found: Sequence[Heads], n_long: int) -> str:
    """In how many runs there are staircases, and heads that look to the right (Fig. 18, 21, 23)."""
    early = sum(float(h.ahead.nanmean(-1).max()) >= findings.heads.PARTNER_ATTENTION for h in found)
    late = sum(findings.heads.looks_right(h.own[-1], h.right[-1], h.decides) for h in found)
    return (
        f"A staircase has steps of half the attention or more. There is {_staircases(found, n_long)}."
        " A head before the last layer that gives half or more of a digit's attention to the column to the right:"
        f" in **{early}**. A decision head that looks more to the right than at its own column: in **{late}**."
    )


def _staircases(found: Sequence[Heads], n_long: int) -> str:
    """In how many runs there is each kind of staircase, in the trained columns and in all of them."""
    told = []
    for kind in found[0].staircases if found else ():
        stands = [h.staircases[kind] >= findings.heads.PARTNER_ATTENTION for h in found]
        trained, every = (sum(bool(x[n:].all()) for x in stands) for n in (n_long, 0))
        columns = f"every {'trained ' if n_long else ''}column"
        text = f"one {kind} in {columns} in **{trained}** of {counted(len(found), 'run')}"
        told.append(text + (f", in all columns in **{every}**" if n_long else ""))
    return "; ".join(told)


def separations(found: Mapping[str, Separation], n_long: int) -> str:
    """In how many runs the clouds are apart at every position, trained and long (Fig. 19, 22, 24)."""
    parts = {"trained ": slice(n_long, None), "long ": slice(0, n_long)} if n_long else {"": slice(0, None)}
    told = []
    for what, part in parts.items():
        values = [[[x for x in side[part] if x == x] for side in (s.tens, s.ones)] for s in found.values()]
        tens, ones = (sum(all(y >= geometry.SEPARATING_ACCURACY for y in x[i]) for x in values) for i in (0, 1))
        told.append(
            f"at every {what}position ten or more is apart in **{tens}** of {counted(len(found), 'run')}"
            f" and an arriving one in **{ones}**"
        )
    return f"By {geometry.SEPARATING_ACCURACY} or more, {'; '.join(told)}."


def forgetting(name: str, found: pd.DataFrame) -> str:
    """How many runs forget, when they are best, and which positions go first (Fig. 20)."""
    peaks = ", ".join(f"{peak} of {epochs}" for peak, epochs in zip(found.peak, found.epochs, strict=True))
    gone = ", ".join(" and ".join(map(str, first)) or "none" for first in found["first"])
    forget = f"**{found.forgets.sum()} of {len(found)}** forget"
    return f"{name}: {forget}. Best at epoch {peaks}. Position that goes first: {gone}."


def stairs(found: Mapping[str, Sequence[tuple[str, Heads]]], n_long: int) -> str:
    """What becomes of each kind of staircase, and of single heads' ones, over the epochs that are kept (App. H)."""
    if not found:
        return "No run without priming has weights from along the way here."
    every = {run: [h for _, h in by_epoch] for run, by_epoch in found.items()}
    kinds = next(iter(every.values()))[0].staircases
    told = [_kind(kind, every, n_long) for kind in kinds]
    return "\n\n".join([*told, *(_falling(layer, every, n_long) for layer in range(len(kinds) - 1))])


@dataclass(frozen=True)
class Steps:
    """The weakest steps of a staircase at the epochs that are kept, at long positions and at the others (App. H)."""

    long: tuple[float, ...]
    trained: tuple[float, ...]

    @property
    def stands(self) -> tuple[bool, ...]:
        """At which of the epochs it stands at the long positions."""
        return tuple(step >= findings.heads.PARTNER_ATTENTION for step in self.long)

    @property
    def breaks(self) -> bool:
        """Whether it stands there at some epoch and does not at a later one."""
        return True in self.stands and not all(self.stands[self.stands.index(True) :])

    @property
    def ends_alone(self) -> bool:
        """Whether it stands there at first and not at last, while the trained steps stand all along."""
        return self.stands[0] and not self.stands[-1] and min(self.trained) >= findings.heads.PARTNER_ATTENTION


def steps(columns: Iterable[Float[Tensor, " column"]], n_long: int) -> Steps:
    """`Steps` of one staircase, column by column at each epoch."""
    weakest = [(float(x[:n_long].min()), float(x[n_long:].min())) for x in columns]
    long, trained = zip(*weakest, strict=True)
    return Steps(long, trained)


def falling(layer: int, every: Sequence[Heads], n_long: int) -> tuple[int, Steps]:
    """The head of a layer whose answer rows' weakest long step falls most over the epochs, or rises least.

    Args:
        layer: which.
        every: the run's heads at each epoch that is kept.
        n_long: how many positions are long.
    """
    by_head = [steps((h.own[layer, head] for h in every), n_long) for head in range(every[0].own.shape[1])]
    head = max(range(len(by_head)), key=lambda head: by_head[head].long[0] - by_head[head].long[-1])
    return head, by_head[head]


def _path(values: Iterable[float]) -> str:
    return " → ".join(f"{x:.2f}" for x in values)


def _kind(kind: str, every: Mapping[str, Sequence[Heads]], n_long: int) -> str:
    """The weakest long step over the epochs, in how many runs it breaks, and whether trained ones sink as well."""
    found = {run: steps((h.staircases[kind] for h in by_epoch), n_long) for run, by_epoch in every.items()}
    listed = "; ".join(f"{run}: {_path(x.long)}" for run, x in found.items())
    formed, broken = sum(any(x.stands) for x in found.values()), sum(x.breaks for x in found.values())
    long, trained = (
        sum(x[-1] < x[0] for x in of) for of in zip(*((x.long, x.trained) for x in found.values()), strict=True)
    )
    return (
        f"Staircase **{kind}**, its weakest long step by each column's best head, at the epochs that are kept,"
        f" {listed}. It reaches one half in **{formed}** of {counted(len(found), 'run')}, and of these it breaks,"
        f" falling below one half later, in **{broken}**. From the first of these epochs to the last it sinks in"
        f" **{long} of {len(found)}**; the weakest trained step, in **{trained} of {len(found)}**."
    )


def _falling(layer: int, every: Mapping[str, Sequence[Heads]], n_long: int) -> str:
    """Each run's head of a layer whose own answer rows' staircase sinks most at the long columns."""
    found = {run: falling(layer, by_epoch, n_long) for run, by_epoch in every.items()}
    told = [
        f"{run}, head {layer}:{head}: {_path(x.long)}, trained {_path(x.trained)}" for run, (head, x) in found.items()
    ]
    alone = sum(x.ends_alone for _, x in found.values())
    return (
        f"One head by itself: of layer {layer}, the one whose weakest long step of the answer rows falls most, or rises"
        f" least, {'; '.join(told)}. It goes from half or more to less, while the trained steps stay at half or more,"
        f" in **{alone}** of {counted(len(found), 'run')}."
    )


def primed(found: Fields) -> str:
    """Who carries and who corrects in a primed model, from `lengths.primed_parts` (App. H.1)."""
    return (
        f"Where a one arrives at a long position, accuracy falls by {found['carried']:.2f} {found['head']}, the"
        f" costliest of the first layer. Without the final MLP it falls by {found['corrected']:.2f} where none arrives,"
        f" by {found['trained']:.2f} where one does at a trained position, and by {found['spared']:.2f} where one does"
        f" at a long one. That all of these suffer (by more than {lengths.PART_LOSS}) but the last, as the paper"
        f" has it, is {'so' if found['spares'] else 'not so'} here."
    )


def needed(lost: Mapping[Ablation, Float[Tensor, "arrives pos"]]) -> str:
    """Which parts are needed where no carried one arrives, the final MLP or others too (App. H.1)."""
    falls = {part: float((lost[INTACT] - accuracy)[0].mean()) for part, accuracy in lost.items()}
    found = [f"{part} ({fall:.3f})" for part, fall in falls.items() if fall > lengths.PART_LOSS]
    if not found:
        return f"Where none arrives, no part costs more than {lengths.PART_LOSS}."
    return f"Where none arrives, accuracy falls by more than {lengths.PART_LOSS} {', '.join(found)}."


def correlations(found: Mapping[str, Mapping[str, tuple[float, ClassAccuracies]]]) -> str:
    """The correlations of every run over the epochs, and in how many the final MLP comes to carry (App. H)."""
    ends = [[correlation for correlation, _ in by_epoch.values()] for by_epoch in found.values()]
    listed = "; ".join(f"{name}: {_path(values)}" for name, values in zip(found, ends, strict=True))
    carries = sum(len(values) > 1 and lengths.comes_to_carry(values[0], values[-1]) for values in ends)
    return (
        f"Correlation at the trained positions, {listed}. It ends at"
        f" {findings.heads.CANNOT_CARRY_CORRELATION} or more and above its first value"
        f" in **{carries}** of {counted(len(found), 'run')}."
    )
