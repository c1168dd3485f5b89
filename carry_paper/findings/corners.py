"""The carry and the nine: three corners in the stream, where one line has two ends.

Whether a column receives a carry depends on the next column, to its right, which is in one of four
*states*: its digits add up to less than nine (`low`); to exactly nine, without a carry into it
(`nine`) or with one (`nine+carry`); or to ten or more (`high`). The last two send a carry. The
column beside the last one has no nine with a carry, since nothing is carried into the last.

A line that moves the carry between low and high need not do so from a nine: a network may hold
apart low sums, nines and carries (compare the three-valued variable of Quirke & Barez 2024,
Understanding Addition in Transformers). So here every swap is reported by the states of base and
source, and by the column's own digit sum. The *carry* direction is the difference in means between
states with and without a carry, balanced over their pairs; the *nine* direction is that between
`nine` and `low`, orthogonal to it. Both are fitted on half of the own digit sums and tested on the
others, so that no swap is tested on digits that its directions were fitted on.

The stream is the last layer's `resid_mid` at the position that answers the column, as in
`carry_line`. `corner_table` measures whole groups.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from carry_core import measure, sums
from carry_core.hooks import no_hook
from carry_core.model import Transformer
from carry_core.sums import Layout
from carry_paper.findings import carry_line
from carry_paper.findings.bars import Bar
from carry_paper.findings.carry_line import Basis, Column, Line, Stream, unit

STATES = ("low", "nine", "nine+carry", "high")
LOW, NINE, NINE_WITH_CARRY, HIGH = range(4)
WITHOUT_CARRY, WITH_CARRY = (LOW, NINE), (NINE_WITH_CARRY, HIGH)
NINE_SUM = 9

TUPLES = 2_000  # of a column: sums with the same digits up to the column, one in each state
FEWEST_PAIRS = 50  # a cell with fewer pairs that the model gets right has no accuracy
N_RANDOM = 20  # random second directions
GRADIENT_STEPS, GRADIENT_BATCH, GRADIENT_RATE = 200, 256, 0.02

# The interchange accuracy that each pair of states must reach.
IN_EACH_STATE = Bar(0.95, perfect=1)

Streams = Float[Tensor, "state tuple d_model"]
OfStates = Int[Tensor, "state tuple"]


# ---- sums


def states(column: Column) -> tuple[int, ...]:
    """Return the states, as indices into `STATES`, that the column's next column can be in."""
    return (LOW, NINE, NINE_WITH_CARRY, HIGH) if column.n_lower > 1 else (LOW, NINE, HIGH)


def state(column: Column, a: Int[Tensor, "*sums"], b: Int[Tensor, "*sums"]) -> Tensor:
    """Return the state of the column's next column in each sum, as an index into `STATES`."""
    digit_sum = column.next_digit_sum(a, b)
    without = torch.where(digit_sum == NINE_SUM, NINE, LOW)
    with_carry = torch.where(digit_sum == NINE_SUM, NINE_WITH_CARRY, HIGH)
    return torch.where(column.carry_in(a, b), with_carry, without)


def own_digit_sum(column: Column, a: Int[Tensor, "*sums"], b: Int[Tensor, "*sums"]) -> Tensor:
    """Return the sum of the column's own two digits in each sum."""
    return column.digits(a) + column.digits(b)


class Tuples(NamedTuple):
    """Sums with the same digits up to a column, one for each state of the next column.

    Attributes:
        of_states: The states, as indices into `STATES`: the first axis of what follows.
        a: The first numbers, `[state, tuple]`.
        b: The second numbers.
    """

    of_states: tuple[int, ...]
    a: OfStates
    b: OfStates


def sample_tuples(column: Column, count: int, generator: torch.Generator, layout: Layout) -> Tuples:
    """Return `count` tuples, balanced over the column's own digit sum as far as it can occur.

    The digits to the left of the column, and those that make its digit sum, are drawn uniformly
    and are the same in all sums of a tuple; those to the right are uniform in each state. A
    decoder is given the answer to its own sum, so its answers agree to the left of the column.
    """
    of_states = states(column)
    chosen = torch.zeros(len(of_states), 2, 0, dtype=torch.int64)
    while chosen.shape[-1] < count:
        left = _left_digits(column, count, generator)  # (number, tuple)
        right = torch.stack([_right_digits(column, s, count, generator) for s in of_states])
        candidates = left * 10**column.n_lower + right  # (state, number, tuple)
        total = candidates.sum(1)
        fits = (total < 10**column.n_digits).all(0)
        if layout.causal:
            earlier = total // 10 ** (column.n_lower + 1)
            fits &= (earlier == earlier[0]).all(0)
        chosen = torch.cat([chosen, candidates[..., fits]], -1)
    chosen = chosen[..., :count]
    return Tuples(of_states, chosen[:, 0], chosen[:, 1])


def _left_digits(column: Column, count: int, generator: torch.Generator) -> Tensor:
    """Return the digits of both numbers up to the column, `[number, tuple]`.

    The column's own digit sum is uniform over 0 to 18, and the digits are among those that make it.
    """
    digit_sum = torch.randint(19, (count,), generator=generator)
    lowest = (digit_sum - 9).clamp(min=0)
    n_ways = digit_sum.clamp(max=9) - lowest + 1
    first = lowest + (torch.rand(count, generator=generator) * n_ways).long()
    own = torch.stack([first, digit_sum - first])
    left = torch.randint(10**column.index, (2, count), generator=generator)
    return 10 * left + own


def _right_digits(
    column: Column, wanted: int, count: int, generator: torch.Generator
) -> Int[Tensor, "number tuple"]:
    """Return the digits of both numbers to the right of the column, uniform in a state."""
    side = 10**column.n_lower
    digits = torch.zeros(2, 0, dtype=torch.int64)
    while digits.shape[1] < count:
        drawn = torch.randint(side, (2, 30 * count), generator=generator)
        digits = torch.cat([digits, drawn[:, state(column, *drawn) == wanted]], 1)
    return digits[:, :count]


# ---- streams of a column


class Corners(NamedTuple):
    """A column of a run, with what swaps between states act on.

    Attributes:
        column: The column.
        tuples: The sums.
        streams: Their streams, and the streams' parts, `[state, tuple, …]`.
        digits: The digits that the model answers in the column, `[state, tuple]`.
        right: True where it answers the whole sum correctly.
        own: The column's own digit sum, `[tuple]`.
    """

    column: Column
    tuples: Tuples
    streams: Stream
    digits: OfStates
    right: Bool[Tensor, "state tuple"]
    own: Int[Tensor, " tuple"]

    @property
    def resid_mid(self) -> Streams:
        return self.streams.resid_mid

    def place(self, state_number: int) -> int:
        """Return the place of a state on the first axis."""
        return self.tuples.of_states.index(state_number)

    def has(self, state_number: int) -> bool:
        """Return True if the next column can be in a state."""
        return state_number in self.tuples.of_states

    def both_right(self, base: int, source: int) -> Bool[Tensor, " tuple"]:
        """Return True for tuples whose sums in two states the model gets right."""
        both: Tensor = self.right[self.place(base)] & self.right[self.place(source)]
        return both


def corners_of(
    model: Transformer, column: Column, generator: torch.Generator, count: int = TUPLES
) -> Corners:
    """Return a column's tuples with the model's streams and answers."""
    config = model.config
    layout = Layout(column.n_digits, config.causal)
    tuples = sample_tuples(column, count, generator, layout)
    a, b = tuples.a, tuples.b
    streams = carry_line.stream(model, a, b, column.position)
    (answers,) = measure.predict(model, a.flatten(), b.flatten())
    expected = sums.digits(a.flatten() + b.flatten(), config.width)
    right = (answers == expected).all(-1).view(a.shape)
    digits = carry_line.digits_of(model, streams.resid_mid)
    return Corners(column, tuples, streams, digits, right, own_digit_sum(column, a[0], b[0]))


def fold_of(own: Int[Tensor, "*sums"]) -> Int[Tensor, "*sums"]:
    """Return the fold, 0 or 1, of own digit sums: 0 and 1 are in one, 2 and 3 in the other.

    A direction that is tested in a fold was fitted in the other.
    """
    return own // 2 % 2


# ---- directions


def pairs_of_states(corners: Corners) -> list[tuple[int, int]]:
    """Return the states of two sums that differ in the carry: that without it first."""
    return [
        (without, with_carry)
        for without in WITHOUT_CARRY
        for with_carry in WITH_CARRY
        if corners.has(without) and corners.has(with_carry)
    ]


def mean_step(
    corners: Corners, states_of_step: tuple[int, int], among: Bool[Tensor, " tuple"]
) -> Float[Tensor, " d_model"]:
    """Return the mean difference of the streams in two states, the second less the first.

    It is the mean over the tuples of `among` whose sums in both states the model gets right.
    """
    first, second = states_of_step
    chosen = among & corners.both_right(first, second)
    resid_mid = corners.resid_mid
    step = resid_mid[corners.place(second)] - resid_mid[corners.place(first)]
    return step[chosen].double().mean(0)


def balanced_line(corners: Corners, among: Bool[Tensor, " tuple"]) -> Line:
    """Return the direction of the carry: the mean over all pairs of states of their mean steps."""
    steps = [mean_step(corners, pair, among) for pair in pairs_of_states(corners)]
    return unit(torch.stack(steps).mean(0)).to(corners.resid_mid)


def natural_basis(corners: Corners, among: Bool[Tensor, " tuple"]) -> Basis:
    """Return the difference of means in which pairs of states weigh as often as they occur.

    Among random pairs that differ in the carry a nine is rare; `carry_line` weighs them so.
    """
    shares = state_shares(corners.column)
    total = torch.zeros(corners.resid_mid.shape[-1], dtype=torch.float64)
    for without, with_carry in pairs_of_states(corners):
        weight = shares[without] * shares[with_carry]
        total += weight * mean_step(corners, (without, with_carry), among)
    return unit(total).to(corners.resid_mid)[None]


def state_shares(column: Column) -> dict[int, float]:
    """Return the share of random sums in which the next column is in each state."""
    below = 10 ** (column.n_lower - 1)  # numbers to the right of the next column
    carry = (below - 1) / (2 * below)  # the share of sums that carry into it
    return {LOW: 0.45, NINE: 0.1 * (1 - carry), NINE_WITH_CARRY: 0.1 * carry, HIGH: 0.45}


def nine_direction(corners: Corners, line: Line, among: Bool[Tensor, " tuple"]) -> Line:
    """Return the direction from low sums to nines without a carry, orthogonal to a line."""
    step = mean_step(corners, (LOW, NINE), among)
    return orthogonal(step, line)


def line_basis(corners: Corners, among: Bool[Tensor, " tuple"]) -> Basis:
    """Return the carry's direction, fitted on some tuples, as a subspace."""
    return balanced_line(corners, among)[None]


def plane_basis(corners: Corners, among: Bool[Tensor, " tuple"]) -> Basis:
    """Return the plane of carry and nine, fitted on some tuples."""
    line = balanced_line(corners, among)
    return torch.stack([line, nine_direction(corners, line, among)])


Bases = tuple[Basis, Basis]  # the subspaces for the tuples of each fold, fitted on the other's


def fitted_bases(
    corners: Corners, fit: Callable[[Corners, Bool[Tensor, " tuple"]], Basis]
) -> Bases:
    """Return the subspaces that `fit` gives for each fold, from the tuples of the other one."""
    folds = fold_of(corners.own)
    return fit(corners, folds != 0), fit(corners, folds != 1)


def orthogonal(step: Float[Tensor, " d_model"], line: Line) -> Line:
    """Return the unit vector of a step's part that is orthogonal to a line."""
    axis = line.double()
    step = step.double()
    return unit(step - (step @ axis) * axis).to(line)


def gradient_line(
    model: Transformer, corners: Corners, among: Bool[Tensor, " tuple"], start: Line
) -> Line:
    """Return one direction, fitted so that its swap makes the source's digit in each state.

    Adam minimises the cross entropy of the source's digit, over batches with as many pairs of each
    two states in both directions, from the line `start` on.
    """
    generator = torch.Generator().manual_seed(0)
    direction = start.clone().requires_grad_()
    optimiser = torch.optim.Adam([direction], lr=GRADIENT_RATE)
    swaps = []  # of each base and source state: their streams, and the source's digits
    for base, source in carry_swaps(corners):
        chosen = among & corners.both_right(base, source)
        x, y = corners.place(base), corners.place(source)
        of_base, of_source = corners.resid_mid[x, chosen], corners.resid_mid[y, chosen]
        swaps.append((of_base.clone(), of_source.clone(), corners.digits[y, chosen]))
    n_rows = GRADIENT_BATCH // len(swaps)
    with torch.enable_grad():
        for _ in range(GRADIENT_STEPS):
            rows = [torch.randint(len(x), (n_rows,), generator=generator) for x, _, _ in swaps]
            batch = [
                torch.cat([part[chosen] for part, chosen in zip(parts, rows, strict=True)])
                for parts in zip(*swaps, strict=True)
            ]
            of_base, of_source, digits = batch
            line = direction / direction.norm()
            patched = carry_line.swapped(of_base, of_source, line[None])
            loss = torch.nn.functional.cross_entropy(logits_of(model, patched), digits)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return unit(direction.detach())


def logits_of(
    model: Transformer, resid_mid: Float[Tensor, "sums d_model"]
) -> Float[Tensor, "sums vocab"]:
    """Return the logits after these streams of the last attention, which gradients go through."""
    last = model.blocks[model.config.layers - 1]
    resid_post = last.mlp(resid_mid.unsqueeze(1), no_hook)
    logits: Tensor = model.unembed(model.norm(resid_post))[:, 0]
    return logits


# ---- swaps


def swapped(
    base: Float[Tensor, "sums d_model"],
    source: Float[Tensor, "sums d_model"],
    bases: Bases,
    own: Int[Tensor, " sums"],
) -> Float[Tensor, "sums d_model"]:
    """Return the base's streams with the source's coordinates in the subspace of each one's fold.

    The folds are those of the `own` digit sums.
    """
    first, second = (carry_line.swapped(base, source, basis) for basis in bases)
    return torch.where((fold_of(own) == 0)[:, None], first, second)


def moved_by(
    model: Transformer,
    corners: Corners,
    bases: Bases,
    swaps: Iterable[tuple[int, int]],
    sources: Streams | None = None,
) -> dict[tuple[int, int], Bool[Tensor, " tuple"]]:
    """Return, for each base and source state, the tuples in which a swap makes the source's digit.

    The source's coordinates are those of its stream, or of `sources` in its place.
    """
    sources = corners.resid_mid if sources is None else sources
    moved = {}
    for base, source in swaps:
        x, y = corners.resid_mid[corners.place(base)], sources[corners.place(source)]
        digits = carry_line.digits_of(model, swapped(x, y, bases, corners.own))
        moved[base, source] = digits == corners.digits[corners.place(source)]
    return moved


def cells(
    corners: Corners, moved: Mapping[tuple[int, int], Bool[Tensor, " tuple"]]
) -> list[dict[str, Any]]:
    """Return a cell for each pair of states.

    Returns:
        Of each cell: the states of the sum whose coordinates are replaced (`base`), and of the one
        that they come from (`source`); the number of `pairs` of which the model gets both sums
        right; and the `accuracy`, the share of swaps after which the digit is exactly the source's,
        None for fewer than `FEWEST_PAIRS`.
    """
    rows = []
    for (base, source), hits in moved.items():
        right = corners.both_right(base, source)
        pairs = int(right.sum())
        accuracy = hits[right].double().mean().item() if pairs >= FEWEST_PAIRS else None
        of_states = {"base": STATES[base], "source": STATES[source]}
        rows.append({**of_states, "pairs": pairs, "accuracy": accuracy})
    return rows


def carry_swaps(corners: Corners) -> list[tuple[int, int]]:
    """Return base and source of all swaps that move the carry, in both directions."""
    return [swap for pair in pairs_of_states(corners) for swap in (pair, pair[::-1])]


def same_carry_swaps(corners: Corners) -> list[tuple[int, int]]:
    """Return base and source of swaps between states of the same carry: the digit has to stay."""
    swaps = []
    for side in (WITHOUT_CARRY, WITH_CARRY):
        present = [number for number in side if corners.has(number)]
        swaps += [(x, y) for x in present for y in present if x != y]
    return swaps


# ---- a column of a run


def fields_of(model: Transformer, corners: Corners, generator: torch.Generator) -> dict[str, Any]:
    """Return what swaps of the carry, and of the carry and the nine, do in a column.

    Returns:
        `right`, the share of the sums in each state that the model gets right; `line`, `natural`,
        `gradient`, `plane`, each a list of cells: swaps of one direction by three estimators, and
        of carry and nine together; `place`, where the states lie on the line, low sums at 0 and
        high ones at 1; and `seconds`, the lowest cell with another second direction in place of
        the nine.
    """
    if not can_be_fitted(corners):
        return {"right": _right_shares(corners), "reason": _reason(corners)}
    swaps = carry_swaps(corners)

    def gradient_basis(corners: Corners, among: Tensor) -> Basis:
        return gradient_line(model, corners, among, balanced_line(corners, among))[None]

    fields: dict[str, Any] = {"right": _right_shares(corners), "reason": None}
    fits = {
        "line": line_basis,
        "plane": plane_basis,
        "natural": natural_basis,
        "gradient": gradient_basis,
    }
    for name, fit in fits.items():
        moved = moved_by(model, corners, fitted_bases(corners, fit), swaps)
        fields[name] = cells(corners, moved)
    fields["place"] = places(corners)
    fields["seconds"] = second_directions(model, corners, generator)
    return fields


def _right_shares(corners: Corners) -> dict[str, float]:
    shares = corners.right.double().mean(1).tolist()
    return {STATES[s]: share for s, share in zip(corners.tuples.of_states, shares, strict=True)}


def can_be_fitted(corners: Corners) -> bool:
    """Return True if each fold has enough sums in each pair of states that differ in the carry."""
    folds = fold_of(corners.own)
    return all(
        int((corners.both_right(*pair) & (folds == fold)).sum()) >= FEWEST_PAIRS
        for pair in [*pairs_of_states(corners), (LOW, NINE)]
        for fold in (0, 1)
    )


def _reason(corners: Corners) -> str:
    shares = _right_shares(corners)
    worst = min(shares, key=lambda name: shares[name])
    return (
        f"the run gets {shares[worst]:.2f} of the sums right whose next column is {worst}: fewer "
        f"than {FEWEST_PAIRS} pairs in a half of the own digit sums"
    )


def places(corners: Corners) -> dict[str, float]:
    """Return where each state lies on the way from low sums, at 0, to high ones, at 1.

    That is its mean coordinate on the direction from low to high, in the same tuples, with the
    direction fitted on other own digit sums. A nine at 1 is where a carry is.
    """
    folds = fold_of(corners.own)
    totals = dict.fromkeys(corners.tuples.of_states, 0.0)
    for fold in (0, 1):
        direction = unit(mean_step(corners, (LOW, HIGH), folds != fold))
        for number in corners.tuples.of_states:
            if number != LOW:
                step = mean_step(corners, (LOW, number), folds == fold)
                totals[number] += (step @ direction).item()
    return {STATES[number]: total / totals[HIGH] for number, total in totals.items()}


def coordinates(corners: Corners) -> pd.DataFrame:
    """Return where each sum of the tuples that the model gets right lies in the plane.

    Returns:
        A row for each sum: its `state`, and its coordinates `carry`, along the direction from low
        to high sums, and `nine`, along what of the direction to nines is orthogonal to it. Both
        are in units of the mean distance from low to high, and relative to the mean of low sums
        with the same own digit sum. Directions were fitted on other own digit sums.
    """
    folds = fold_of(corners.own)
    rows = []
    for fold in (0, 1):
        step = mean_step(corners, (LOW, HIGH), folds != fold)
        carry = unit(step).to(corners.resid_mid)
        nine = nine_direction(corners, carry, folds != fold)
        plane = torch.stack([carry, nine]) / step.norm()
        for own in corners.own[folds == fold].unique():
            of_own = corners.own == own
            low = corners.place(LOW)
            origin = corners.resid_mid[low, of_own & corners.right[low]].mean(0)
            for i, number in enumerate(corners.tuples.of_states):
                chosen = corners.resid_mid[i, of_own & corners.right[i]] - origin
                frame = pd.DataFrame(
                    (chosen @ plane.T.to(chosen)).tolist(), columns=["carry", "nine"]
                )
                rows.append(frame.assign(state=STATES[number]))
    return pd.concat(rows, ignore_index=True)


def second_directions(
    model: Transformer, corners: Corners, generator: torch.Generator
) -> dict[str, float | None]:
    """Return the lowest cell of planes whose second direction is not the nine.

    These are a random direction (the median of `N_RANDOM`), the leading principal axis of what the
    line leaves of the paired differences, and a step of the own digit sum.
    """
    swaps = carry_swaps(corners)
    random = torch.randn(N_RANDOM, corners.resid_mid.shape[-1], generator=generator)

    def with_second(second: Callable[[Tensor, Line], Tensor]) -> float | None:
        def plane(corners: Corners, among: Tensor) -> Basis:
            line = balanced_line(corners, among)
            return torch.stack([line, orthogonal(second(among, line), line)])

        bases = fitted_bases(corners, plane)
        return lowest(cells(corners, moved_by(model, corners, bases, swaps)))

    def always(direction: Line) -> Callable[[Tensor, Line], Tensor]:
        return lambda among, line: direction

    by_random = [with_second(always(x)) for x in random]
    present = sorted(accuracy for accuracy in by_random if accuracy is not None)
    return {
        "random": present[len(present) // 2] if present else None,
        "principal": with_second(lambda among, line: principal_axis(corners, among, line)),
        "own digit sum": with_second(lambda among, line: own_step(corners, among)),
    }


def principal_axis(corners: Corners, among: Bool[Tensor, " tuple"], line: Line) -> Line:
    """Return the leading principal axis of what a line leaves of the paired differences.

    It is that of their second moment, not of their covariance.
    """
    steps = []
    for without, with_carry in pairs_of_states(corners):
        chosen = among & corners.both_right(without, with_carry)
        x, y = corners.place(without), corners.place(with_carry)
        steps.append((corners.resid_mid[y] - corners.resid_mid[x])[chosen])
    step, direction = torch.cat(steps).double(), line.double()
    rest = step - (step @ direction)[:, None] * direction
    _, vectors = torch.linalg.eigh(rest.T @ rest)  # the largest comes last
    axis: Tensor = vectors[:, -1].to(line)
    return axis


def own_step(corners: Corners, among: Bool[Tensor, " tuple"]) -> Float[Tensor, " d_model"]:
    """Return the mean step of the stream when the own digit sum grows by one, in the same state.

    It is the mean over states and over own digit sums s with s + 1 among the same tuples.
    """
    steps = []
    for i in range(len(corners.tuples.of_states)):
        by_own = {}
        for own in corners.own[among].unique().tolist():
            chosen = among & corners.right[i] & (corners.own == own)
            if chosen.any():
                by_own[own] = corners.resid_mid[i][chosen].double().mean(0)
        steps += [by_own[own + 1] - by_own[own] for own in by_own if own + 1 in by_own]
    return torch.stack(steps).mean(0)


# ---- the criterion, which `book/protocol.md` dates


def lowest(rows: Iterable[Mapping[str, Any]], name: str = "accuracy") -> float | None:
    """Return the lowest accuracy of some cells, or another value; None if any of them has none."""
    values: list[float | None] = [row.get(name) for row in rows]
    present = [value for value in values if value is not None]
    return min(present) if len(present) == len(values) else None


def in_each_state(rows: Iterable[Mapping[str, Any]]) -> bool | None:
    """Return True if a swap moves the carry in every pair of states; None if a cell is empty."""
    accuracy = lowest(rows)
    return None if accuracy is None else accuracy >= IN_EACH_STATE
