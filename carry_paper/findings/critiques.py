"""What has been said against swaps of a subspace, and what that comes to for the carry's.

- *Illusion* (Makelov et al. 2024, Is This the Subspace You Are Looking for?): a direction can move
  an answer by a part that nothing reads. So the subspace is split into what the rest of the network
  reads, the leading eigenvectors of the mean squared Jacobian of the logits, and what it does not;
  each part is swapped alone.
- *Off the distribution*: a patched stream may be like none that the network makes. Its distance to
  the nearest natural one of the source's state with the same own digits is put beside two
  others, and the margin of its answer beside that of an intact sum.
- *Triviality*: a line for anything might do. The rival is a step of the own digit sum, which
  changes the same digit.
- *Does the swap move anything else?* Between sums of the same carry, the digit has to stay.
- *Is it a variable of two or three values?* In place of the source's coordinates, the subspace is
  set to their mean over sums in the source's state.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from carry_core.model import Transformer
from carry_paper.findings import carry_line, corners
from carry_paper.findings.carry_line import Basis, unit
from carry_paper.findings.corners import Bases, Corners

READ_SHARES = (0.9, 0.99, 0.999)  # of the mean squared Jacobian that is read space
JACOBIAN_SUMS = 600  # sums over which it is averaged
TINY = 1e-4  # a shorter part of a unit vector is none


def critiques(model: Transformer, of: Corners, bases: Bases) -> dict[str, Any]:
    """Return what each critique comes to for a subspace, fitted in each fold."""
    stays = corners.moved_by(model, of, bases, corners.same_carry_swaps(of))
    return {
        "read": read_space(model, of, bases),
        "distance": distances(of, bases),
        "margin": margins(model, of, bases),
        "rival": rival(model, of),
        "same carry": corners.cells(of, stays),
        "means": corners.cells(of, moved_by_means(model, of, bases)),
    }


def of_gradient_line(model: Transformer, of: Corners) -> dict[str, Any]:
    """Return `critiques` of the line by gradient, and its `cosine` with the difference of means.

    The cosine is the lower of the two folds'.
    """
    folds = corners.fold_of(of.own)
    lines, cosines = [], []
    for fold in (0, 1):
        means = corners.balanced_line(of, folds != fold)
        line = corners.gradient_line(model, of, folds != fold, means)
        lines.append(line[None])
        cosines.append((line @ means).item())
    return {"cosine": min(cosines), **critiques(model, of, (lines[0], lines[1]))}


# ---- the illusion


def mean_squared_jacobian(
    model: Transformer, resid_mid: Float[Tensor, "sums d_model"]
) -> Float[Tensor, "d_model d_model"]:
    """Return the mean of J'J, with J the derivatives of a sum's centred logits by its stream."""
    with torch.enable_grad():
        streams = resid_mid.clone().requires_grad_()
        logits = corners.logits_of(model, streams)
        centred = logits - logits.mean(-1, keepdim=True)
        rows = []
        for token in range(logits.shape[-1]):
            (row,) = torch.autograd.grad(centred[:, token].sum(), streams, retain_graph=True)
            rows.append(row.double())
    jacobian = torch.stack(rows, 1)  # (sums, vocab, d_model)
    squared: Tensor = torch.einsum("std,ste->de", jacobian, jacobian) / len(resid_mid)
    return squared


def leading_axes(squared: Float[Tensor, "d_model d_model"], share: float) -> Basis:
    """Return the fewest eigenvectors, the leading ones, that make up a share of the trace."""
    values, vectors = torch.linalg.eigh(squared)
    values, vectors = values.flip(0).clamp(min=0), vectors.flip(1)
    reached = values.cumsum(0) >= share * values.sum()
    count = int(reached.long().argmax()) + 1
    axes: Tensor = vectors[:, :count].T
    return axes


def orthonormal(basis: Float[Tensor, "k d_model"]) -> Float[Tensor, "k d_model"]:
    """Return orthonormal rows that span what the rows of a basis do."""
    rows: Tensor = torch.linalg.qr(basis.T)[0].T
    return rows


def read_space(model: Transformer, of: Corners, bases: Bases) -> list[dict[str, Any]]:
    """Return what swaps of a subspace's read and unread parts move, each alone.

    Returns:
        For each `share` of the mean squared Jacobian and each `part`, `read` or `not read`: the
        `dimensions` of the read space; the `length` of the line's part, from 0 to 1, or of several
        directions the shortest; and the `lowest` cell of its swaps, None if there is no such part,
        or a cell is empty.
    """
    chosen = of.resid_mid[of.right][:: max(1, int(of.right.sum()) // JACOBIAN_SUMS)]
    squared = mean_squared_jacobian(model, chosen)
    rows = []
    for share in READ_SHARES:
        axes = leading_axes(squared, share).to(of.resid_mid)
        read = [basis @ axes.T @ axes for basis in bases]
        not_read = [basis - inside for basis, inside in zip(bases, read, strict=True)]
        for part, (first, second) in (("read", read), ("not read", not_read)):
            spans = orthonormal(first), orthonormal(second)
            moved = corners.moved_by(model, of, spans, corners.carry_swaps(of))
            lowest = corners.lowest(corners.cells(of, moved))
            length = torch.cat([first, second]).norm(dim=1).min().item()
            row = {"share": share, "dimensions": len(axes), "part": part, "length": length}
            rows.append({**row, "lowest": lowest if length > TINY else None})
    return rows


def is_illusion(parts: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if what is read of a subspace that moves the carry does not move it.

    It is judged by the largest read space.
    """
    (read,) = [row for row in parts if row["part"] == "read" and row["share"] == READ_SHARES[-1]]
    return read["lowest"] is None or read["lowest"] < corners.IN_EACH_STATE


# ---- off the distribution


def distances(of: Corners, bases: Bases) -> dict[str, float]:
    """Return median distances to the nearest natural stream of the source's state and own digits.

    `patched` is that of the base with the source's coordinates, `before` that of the base itself,
    and `natural` that of a source to the nearest other one. They are in units of the median
    distance between base and source.
    """
    folds = corners.fold_of(of.own)
    own_digits = of.column.digits(of.tuples.a[0]) * 10 + of.column.digits(of.tuples.b[0])
    by_name: dict[str, list[Tensor]] = {"patched": [], "before": [], "natural": [], "step": []}
    for base, source in corners.carry_swaps(of):
        x, y = of.resid_mid[of.place(base)], of.resid_mid[of.place(source)]
        both = of.both_right(base, source)
        for digits in own_digits[both].unique():
            chosen = both & (own_digits == digits)
            if chosen.sum() < 3:
                continue
            natural, before = y[chosen], x[chosen]
            fold = int(folds[chosen][0])
            patched = carry_line.swapped(before, natural, bases[fold])
            between = torch.cdist(natural, natural).fill_diagonal_(torch.inf)
            # A patched stream's own source is not among those that it is compared with.
            from_patched = torch.cdist(patched, natural).fill_diagonal_(torch.inf)
            from_before = torch.cdist(before, natural).fill_diagonal_(torch.inf)
            by_name["natural"].append(between.amin(1))
            by_name["patched"].append(from_patched.amin(1))
            by_name["before"].append(from_before.amin(1))
            by_name["step"].append((natural - before).norm(dim=1))
    medians = {
        name: torch.cat(values).median().item() for name, values in by_name.items() if values
    }
    step = medians.pop("step", float("nan"))
    return {name: value / step for name, value in medians.items()}


def margins(model: Transformer, of: Corners, bases: Bases) -> dict[str, float]:
    """Return the median margin of the right digit's logit over the next, patched and intact."""
    by_kind: dict[str, list[Tensor]] = {"patched": [], "intact": []}
    for base, source in corners.carry_swaps(of):
        both = of.both_right(base, source)
        x, y = of.resid_mid[of.place(base), both], of.resid_mid[of.place(source), both]
        digits = of.digits[of.place(source), both]
        patched = corners.swapped(x, y, bases, of.own[both])
        for name, streams in (("patched", patched), ("intact", y)):
            by_kind[name].append(_margin(corners.logits_of(model, streams), digits))
    return {name: torch.cat(values).median().item() for name, values in by_kind.items()}


def _margin(logits: Float[Tensor, "sums vocab"], digit: Tensor) -> Float[Tensor, " sums"]:
    own = logits.gather(1, digit[:, None])
    others = logits.scatter(1, digit[:, None], -torch.inf)
    margin: Tensor = own[:, 0] - others.amax(1)
    return margin


# ---- rivals


def rival(model: Transformer, of: Corners) -> dict[str, float | None]:
    """Return what a swap along a step of the own digit sum moves, in place of the carry line.

    Returns:
        `highest`, the highest cell of its swaps; `cosine` with the line, with its sign (where it is
        negative, the coordinate falls as the own digit sum rises); `length` of the step, that
        of a carry being 1.
    """
    everything = torch.ones_like(of.own, dtype=torch.bool)
    step = corners.own_step(of, everything)
    line = corners.balanced_line(of, everything)
    carry = torch.stack(
        [corners.mean_step(of, pair, everything) for pair in corners.pairs_of_states(of)]
    ).mean(0)

    bases = corners.fitted_bases(of, own_step_basis)
    moved = corners.moved_by(model, of, bases, corners.carry_swaps(of))
    accuracies = [cell["accuracy"] for cell in corners.cells(of, moved)]
    return {
        "highest": max((x for x in accuracies if x is not None), default=None),
        "cosine": float(unit(step) @ line.double()),
        "length": float(step.norm() / carry.norm()),
    }


def own_step_basis(of: Corners, among: Bool[Tensor, " tuple"]) -> Basis:
    """Return the direction of a step of the own digit sum, fitted on some tuples, as a subspace."""
    return unit(corners.own_step(of, among)).to(of.resid_mid)[None]


def moved_by_means(
    model: Transformer, of: Corners, bases: Bases
) -> Mapping[tuple[int, int], Bool[Tensor, " tuple"]]:
    """Return, as `corners.moved_by`, where the source state's mean coordinates make its digit.

    The mean is over the sums on which the subspace was fitted.
    """
    folds = corners.fold_of(of.own)
    means = torch.empty_like(of.resid_mid)
    for mean, streams, right in zip(means, of.resid_mid, of.right, strict=True):
        for fold in (0, 1):
            mean[folds == fold] = streams[(folds != fold) & right].mean(0)
    return corners.moved_by(model, of, bases, corners.carry_swaps(of), means)
