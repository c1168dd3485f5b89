"""What the pages say of what was measured in many runs, as sentences: of longer sums."""

from collections.abc import Iterable, Mapping, Sequence

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


def _path(values: Iterable[float]) -> str:
    return " → ".join(f"{x:.2f}" for x in values)


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
