"""Words for a page's sentences, made from computed results."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import torch

from carry_core import carries
from carry_core.sums import Layout
from carry_paper.findings import adder, dynamics, lengths, typology
from carry_paper.findings.geometry import SEPARATING_ACCURACY
from carry_paper.findings.heads import (
    CANNOT_CARRY_CORRELATION,
    CARRY_MOSTLY_LOST,
    CELL_ACCURACY,
    EXACT_MATCH_COST,
    NO_CARRY_ACCURACY,
    PARTNER_ATTENTION,
    share_to_the_right,
)
from carry_paper.findings.neurons import CARRY_AXIS_CORRELATION
from carry_paper.findings.pentagon import VISIBLE_SCORE
from carry_paper.llm.recordings import MODELS
from carry_paper.pages.minus import minus_signs
from carry_paper.pages.provenance import (  # noqa: F401
    difference_from_main,
    longer_sums,
    measured_anew,
    provenance,
    tested_epochs,
)
from carry_paper.pages.values import in_ranges, listed_runs, spans  # noqa: F401
from carry_paper.plots.sides import AUTHORS, Arrays

MISSING = "–"  # stands for a number that a page does not have
VISIBLE_DROP = 0.1  # of an exact match from its best value, on the page of Figure 8
ABLE_TO_ADD = 0.5  # exact match at the end from which digits can be in order, on that of Figure 9

# Of runs; NaN for a run that never got there.
Epochs: TypeAlias = Sequence[float] | np.ndarray | pd.Series

# ---- weights and learning curves


# ---- numbers and runs

OWNERS = {"ours": "our", "author": "the author’s"}


def of_runs(shows: Mapping[Any, bool] | pd.Series, whose: str = "") -> str:
    """Return the number and the list of runs that show something, in words.

    Examples are `4 of 6 runs (0, 1, 3 and 4)`, `all 6 runs`, `both runs` and `none of 6 runs`; with
    an owner, `4 of our 6 runs (0, 1, 3 and 4)`, `all 6 of our runs` and `none of our 6 runs`; and
    `no run (there is none)`.

    Args:
        shows: True for a run that shows it, by the run's number.
        whose: The owner of the runs, one of `OWNERS`; "" leaves it out.
    """
    n_runs = len(shows)
    if not n_runs:
        return "no run (there is none)"
    showing = [str(run) for run, shows_it in dict(shows).items() if shows_it]
    if len(showing) == n_runs:
        return _all_of(n_runs, whose)
    runs_of_owner = f"{whose} {n_runs} runs" if whose else f"{n_runs} runs"
    if not showing and n_runs == 1:
        return f"none of {whose} runs (there is only one)" if whose else "no run"
    if not showing and n_runs == 2 and whose:
        return f"neither of {whose} runs"
    if not showing:
        return f"none of {runs_of_owner}"
    *earlier, last = in_ranges(showing)
    listed = f"{', '.join(earlier)} and {last}" if earlier else last
    return f"{len(showing)} of {runs_of_owner} ({listed})"


def _all_of(n_runs: int, whose: str) -> str:
    """Return the words for all runs of an owner, such as `both of our runs`."""
    if n_runs == 1:
        return f"{whose or 'the'} only run"
    count = "both" if n_runs == 2 else f"all {n_runs}"
    return f"{count} of {whose} runs" if whose else f"{count} runs"


def none_stored(source: str) -> str:
    """Return the words for the runs of a source, `ours` or `author`, of which nothing is stored."""
    return f"none of {OWNERS[source]} runs (none is stored)"


def n_of_runs(shows: "pd.Series[bool]") -> str:
    """Return the number of runs that show something, such as `4 of 6 runs` or `all 6 runs`."""
    if len(shows) and shows.all():
        return _all_of(len(shows), "")
    return f"{int(shows.sum())} of {len(shows)} runs"


def parts_that_move_it(side: str, deciding: pd.DataFrame | None) -> dict[str, Any]:
    """Return a side's runs in which one head, or the final MLP, moves the carry by itself.

    Args:
        side: The end of the words' names, `ours` or `author`.
        deciding: The runs, from `findings.typology.who_decides`; None if the side has no stored
            map.
    """
    if deciding is None:
        return dict.fromkeys((f"one_{side}", f"mlp_{side}"), none_stored(side))
    return {
        f"one_{side}": deciding["one head"] >= typology.DECIDES,
        f"mlp_{side}": deciding["final MLP"] >= typology.DECIDES,
    }


def counted(values: "pd.Series[Any]") -> str:
    """Return the count of each value, the most frequent first, such as `9 late, 1 shared`."""
    return ", ".join(f"{n} {value}" for value, n in values.value_counts().items())


def in_words(value: Any, name: str = "", source: str | None = None) -> Any:
    """Return the words for a value: `of_runs` for booleans by run, else the value itself.

    Args:
        value: The value.
        name: The name under which a page glues it. It tells whose the runs are if it begins with
            `author_`, or ends in `_author` or `_ours`.
        source: Else they are of this source, `ours` or `author`; of None, no owner is named.
    """
    if isinstance(value, list | pd.Index):
        return listed_runs(value)
    if not isinstance(value, Mapping | pd.Series):
        return value
    if name.startswith("author_") or name.endswith("_author"):
        source = "author"
    elif name.endswith("_ours"):
        source = "ours"
    return of_runs(value, OWNERS[source] if source else "")


def both_sides(
    sides: Mapping[str, Any], words: Callable[[Any], Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the words for the side computed here and, as `author_…`, for the author's side.

    If there is no author's side, these say that no runs of his are stored, and numbers are dashes.

    Args:
        sides: The data of each side; the last one was computed here.
        words: A function that returns the words for a side's data, by name.
    """
    computed = dict(words(list(sides.values())[-1]))
    authors: dict[str, Any] = {}
    for name, value in computed.items():
        are_runs = isinstance(value, Mapping | pd.Series)
        authors[name] = none_stored("author") if are_runs else MISSING
    if AUTHORS in sides:
        authors = dict(words(sides[AUTHORS]))
    return computed | {f"author_{name}": value for name, value in authors.items()}


def drawn(sides: Collection[str], both: str, alone: str) -> str:
    """Return the words of a caption for the sides that a figure draws.

    Args:
        sides: The titles of the sides.
        both: The words for the author's side beside ours.
        alone: The words for a single side, with its owner in place of `{whose}`.
    """
    if len(sides) > 1:
        return both
    return alone.format(whose=OWNERS["author" if AUTHORS in sides else "ours"])


def lowest_to_highest(values: Any, digits: int = 2) -> str:
    """Return the range of some numbers in words: `0.05 to 0.99`, or `0.33` if all are alike."""
    series = pd.Series(values)
    ends = [f"{end:.{digits}f}" for end in (series.min(), series.max())]
    return minus_signs(" to ".join(dict.fromkeys(ends)))


# ---- tables of runs


def all_heads_form_staircases(transitions: pd.DataFrame) -> "pd.Series[bool]":
    """Return True for the one-layer runs in which every head forms a staircase (Fig. 2, 8, 9).

    `transitions` are those of `findings.dynamics`; `passes` has the epoch of each head, or NaN.
    """
    return transitions.passes.map(lambda epochs: not np.isnan(epochs).any())


def heads_form_staircases(epochs: Epochs) -> str:
    """Return a sentence on when each head of a one-layer run forms its staircase (Fig. 2)."""
    formed = sorted(epoch for epoch in epochs if not np.isnan(epoch))
    if not formed:
        return "No head forms a staircase."
    times = [f"at epoch {epoch:.0f}" for epoch in formed] + ["never"] * (len(epochs) - len(formed))
    return f"One head forms a staircase {', the other '.join(times)}."


def ends_by_staircase(exact: pd.Series, formed: "pd.Series[bool]") -> str:
    """Return a sentence on the exact match with which runs end, with staircases or not (Fig. 9).

    Args:
        exact: The exact match at the end, by run.
        formed: True for a run whose heads form their staircases.
    """
    if formed.all() or not formed.any():
        return f"The lowest run ends at {exact.min():.2f} exact match."
    lowest, highest = exact[formed].min(), exact[~formed].max()
    return (
        f"The lowest of these ends at {lowest:.2f} exact match, the highest of the others at"
        f" {highest:.2f}."
    )


def exact_matches(exact: pd.DataFrame) -> dict[str, Any]:
    """Return the best exact match of the runs, and how far it falls until the end (Fig. 8).

    `exact` has the exact match of each run, the `best` and that `at the end`.
    """
    fall = exact["best"] - exact["at the end"]
    worst = exact.loc[fall.idxmax()]
    return {
        "perfect": exact["best"] == 1,
        "best_range": lowest_to_highest(exact["best"]),
        "drop_level": VISIBLE_DROP,
        "drops": fall > VISIBLE_DROP,
        "falls": _furthest_fall(worst),
    }


def _furthest_fall(worst: "pd.Series[float]") -> str:
    """Return a sentence on the exact match that falls furthest from its best to the end."""
    best, last = (f"{worst[when]:.3f}" for when in ("best", "at the end"))
    if best == last:
        return "No run ends visibly below its best."
    return f"It falls furthest in run {worst.name}, from {best} to {last}."


def first_reached(epochs: Epochs) -> str:
    """Return when runs first do something, such as `between epoch 5 and epoch 9`.

    `epochs` has NaN for a run that never does, and is of some run that does.
    """
    reached = pd.Series(epochs, dtype=float)
    first, last = reached.min(), reached.max()
    n_never = int(reached.isna().sum())
    never = f", and never in {n_never} of {len(reached)} runs" if n_never else ""
    if first == last:
        return f"at epoch {first:.0f}{never}"
    return f"between epoch {first:.0f} and epoch {last:.0f}{never}"


def exact_match_at_the_end(ends: pd.DataFrame | None, source: str) -> str:
    """Return a sentence on the exact match of runs at the end of their training (Fig. 11).

    Args:
        ends: The exact match `at the end`, and the epoch of `0.999 from epoch`, of each run; None
            if it was not recorded.
        source: Whose runs they are, `ours` or `author`.
    """
    if ends is None:
        return "The exact match was not recorded."
    perfect = of_runs(ends["at the end"] >= dynamics.PERFECT, OWNERS[source])
    sentence = f"At the end the exact match on test sums is 1.000, to three places, in {perfect}"
    epochs = ends["0.999 from epoch"]
    if epochs.isna().all():
        return f"{sentence}, and no run reaches 0.999."
    return f"{sentence}, and 0.999 is first reached {first_reached(epochs)}."


def staircases_in_training(epochs: Epochs, source: str) -> str:
    """Return a sentence on when layer 0 has its staircase in training (Fig. 11).

    Args:
        epochs: The epoch at which each run has it; NaN if it never has. Empty if the attention was
            not recorded.
        source: Whose runs they are, `ours` or `author`.
    """
    if not len(epochs):
        return "The attention was not recorded."
    whose = f"In {OWNERS[source]} runs, whose attention was recorded,"
    if pd.isna(epochs).all():
        return f"{whose} layer 0 never has a staircase for every digit."
    return f"{whose} the staircases of layer 0 form {first_reached(epochs)}."


def progress_measure(correlations: Sequence[float]) -> str:
    """Return a sentence on how much a progress measure hides from the loss (Fig. 5).

    `correlations` are the rank correlations of both, of each run; empty if it was not recorded.
    """
    if not len(correlations):
        return "It was not recorded while these runs were trained."
    lowest, highest = (minus_signs(f"{end(correlations):.2f}") for end in (min, max))
    return (
        "From the kink on, Spearman's rank correlation between it and the test loss is"
        f" {lowest} to {highest}: at −1 the loss says as much as the correlation, at 0 it says"
        " nothing about it."
    )


def strong_decay(transitions: pd.DataFrame) -> dict[str, Any]:
    """Return the runs in which both heads form a staircase, and what changes with it (Fig. 10).

    `transitions` has a row for each run: `rise`, `lag`, `turn of the norm`, `lost before`,
    `gained after`, `epochs`, and the epoch at which each `head …` forms its staircase.
    """
    formed = transitions.filter(like="head ").notna().all(axis=1).to_numpy()
    coincide = []
    bounce = []
    for _, run in transitions.iterrows():
        epochs = int(run["epochs"])
        coincide.append(dynamics.coincides(run["lag"], epochs))
        to_turn = run["turn of the norm"] - run["rise"]
        norm = to_turn, run["lost before"], run["gained after"]
        bounce.append(dynamics.bounces(*norm, epochs))
    numbers = transitions["run"]
    words = {"formed": formed, "coincide": formed & np.array(coincide), "bounce": bounce}
    return {name: pd.Series(shows, numbers) for name, shows in words.items()}


def as_ordered_as_others(order: pd.DataFrame, own: "pd.Series[bool]") -> Any:
    """Return the runs whose digits are at least as well in order as in one of the others.

    A dash if there are no others (Fig. 9, 10).

    Args:
        order: The `mean` order of the digits of each `run`.
        own: A mask of the page's runs; the others are those with which it compares them.
    """
    others = order[~own]["mean"]
    if not len(others):
        return MISSING
    return order[own].set_index("run")["mean"] >= others.min()


def lost_orders(side: tuple[pd.DataFrame, Sequence[float]]) -> dict[str, Any]:
    """Return the runs without decay whose digits are less in order than with it (Fig. 9).

    `weaker` has those that end able to add alone: the others, `unlearned`, have no order to lose,
    and only the ledger's `weaker_of_all` counts them.

    Args:
        side: The `mean` order of the digits of each `run`, with and without `decay`; and the exact
            match at the end of each run without it.
    """
    order, exact = side
    ordered = as_ordered_as_others(order, order.decay == "without")
    if isinstance(ordered, str):
        return dict.fromkeys(("weaker", "weaker_of_all", "unlearned"), MISSING)
    learned = pd.Series(exact, ordered.index) >= ABLE_TO_ADD
    return {"weaker": ~ordered[learned], "weaker_of_all": ~ordered, "unlearned": ~learned}


def carrying_ablations(cells: pd.DataFrame) -> dict[str, Any]:
    """Return the runs in which ablating a part takes carrying away and nothing else (Fig. 12).

    `cells` are accuracies by ablation, run, class and position.
    """
    means = cells.pivot_table("accuracy", "run", ["ablation", "carry_in"])
    words = {}
    for name, part in {"whole": "final MLP", "picked": "carry neurons"}.items():
        others_stay = means[part, False] >= NO_CARRY_ACCURACY
        words[name] = others_stay & (means[part, True] < CARRY_MOSTLY_LOST)
    return words


def carry_axes(correlations: pd.DataFrame) -> dict[str, Any]:
    """Return the runs in which an axis, and the plane of both, is a carry axis (Fig. 13)."""
    by_run = correlations.astype({"run": int}).set_index("run")
    return {name: by_run[name] >= CARRY_AXIS_CORRELATION for name in ("first", "second", "plane")}


def pentagons(side: Arrays) -> dict[str, Any]:
    """Return the runs beyond chance, and those in which a pentagon can be seen (Fig. 17).

    `side` has by run the scores of the leading and of the best plane, and those that are reached
    with shuffled labels.
    """
    leading, best = np.asarray(side["scores"]).T
    leading_by_chance = np.asarray(side["shuffled"])[:, 0]
    words = {
        "beyond": leading > leading_by_chance,
        "visible": leading >= VISIBLE_SCORE,
        "anywhere": best >= VISIBLE_SCORE,
    }
    return {name: pd.Series(shows, side["runs"]) for name, shows in words.items()}


def full_adders(agreements: pd.DataFrame) -> dict[str, Any]:
    """Return the runs that are full adders, and those that have the parts of one (Fig. 26).

    `agreements` has a row for each `run`, with the share of sums for which each part says what the
    schoolbook says. A run leaks if, with its head ablated, digits with a carry-in stay correct and
    a one is added to some of the others only.
    """
    shares = agreements.set_index("run")
    rules = {
        "half": adder.first_layer_adds,
        "carry": adder.attention_is_the_carry_line,
        "bypassed": adder.mlp_is_the_second_xor,
    }
    parts: dict[str, dict[Any, bool]] = {name: {} for name in ("full", *rules)}
    for run, row in shares.to_dict("index").items():
        fields = row | {"carry_before_the_last_attention": [row["early, high"]]}
        for name, rule in rules.items():
            parts[name][run] = rule(fields)
        parts["full"][run] = all(parts[name][run] for name in rules)
    added = shares["head ablated, one added"]
    adds_to_some = (added > 1 - CELL_ACCURACY) & (added < CELL_ACCURACY)
    return parts | {
        "rough": f"{adder.ROUGH_AGREEMENT}",
        "close": f"{CELL_ACCURACY}",
        "ones": shares.ones >= CELL_ACCURACY,
        "early": shares["early, high"] >= CELL_ACCURACY,
        "leaky": (shares["head ablated, carry-in"] >= CELL_ACCURACY) & adds_to_some,
        "halfway": shares.halfway.max(),
    }


def three_layers(exact: pd.DataFrame) -> dict[str, Any]:
    """Return the runs in which a single head matters, and in which a pair decides (Tab. 3).

    `exact` has the exact match of each run, intact and without each single head such as `2:1`; and
    if a pair `decides`.
    """
    cost = exact.intact - exact.filter(regex=r"^\d+:\d+$").min(axis=1)
    return {"matters": cost >= EXACT_MATCH_COST, "alike": exact.decides}


def carries_but_for_the_exception(cells: pd.DataFrame) -> dict[str, Any]:
    """Return the runs whose final MLP carries in all cells but the paper's exception (Tab. 3).

    `cells` has accuracies by run, class, position and the part that they are `without`.
    """
    without_mlp = cells[cells.without == "final MLP"]
    is_exception = (without_mlp.carry_class == "C all con.") & (without_mlp.position == "pos8")
    others = without_mlp[~is_exception]
    with_carry_in = others[others.carry_in].groupby("run").accuracy
    without_carry_in = others[~others.carry_in].groupby("run").accuracy
    is_lost = with_carry_in.mean() < CARRY_MOSTLY_LOST
    return {"carries": is_lost & (with_carry_in.max() < without_carry_in.min())}


def full_adders_by_swaps(shares: Mapping[str, float]) -> str:
    """Return a sentence on the answers that a full adder predicts, where one head decides.

    `shares` are those of the answers, with digit sums set at the `digits`, and at the `digits and
    answer`; empty if no head decides in any run.
    """
    if not len(shares):
        return "In no run measured here does one head do so, so the full adder was not tried."
    return (
        f"In those of the runs measured here, the full adder predicts"
        f" {shares['digits and answer']:.1%} of all answers under random swaps of its variables if"
        f" digit sums are set at the digits and at the answer position, and"
        f" {shares['digits']:.1%} if at the digits alone."
    )


def looks_right_by_class(sides: Mapping[str, Arrays], layout: Layout, n_digits: int) -> str:
    """Return a clause on where the decision head looks to the right, in the run shown (Fig. 15).

    Each side has the `attention` of the carry classes of its run, and the `decision_head`.
    """
    clauses = []
    for side, arrays in sides.items():
        pattern = torch.as_tensor(np.asarray(arrays["attention"])).float()
        of_head = pattern[:, -1, int(arrays["decision_head"])]  # [class, query, key]
        looks_right = share_to_the_right(of_head, layout)[:, 1 - n_digits :] > 0.5
        carry_in = carries.carry_in(n_digits)[: len(of_head), :-1]
        counts = []
        for kind in (carry_in, ~carry_in):
            counts.append(f"{int(looks_right[kind].sum())} of {int(kind.sum())}")
        owner = OWNERS["author" if side == AUTHORS else "ours"]
        run = f"{owner} run {int(arrays['run'])}"
        clauses.append(f"in {counts[0]} cells with a carry-in and in {counts[1]} others in {run}")
    return ", and ".join(clauses)


# ---- trained groups


def same_parts(inside: pd.DataFrame) -> dict[str, str]:
    """Return a clause on whether a group's trainings lead to the same parts, and on the runs.

    A part is the same if at least two thirds of the runs of each training have it, or at most one
    third of each.

    Args:
        inside: What the parts do, with a row for each `training` and `run`.
    """
    head = "lost without the decision head"
    decision = inside[head] - inside["lost without the other head"] >= EXACT_MATCH_COST
    mlp = inside["no final MLP: correlation with no carries"] >= CANNOT_CARRY_CORRELATION
    shares = pd.concat([decision, mlp], axis=1).groupby(level="training").mean()
    if len(shares) == 1:
        verdict = "This group has one training only"
    elif ((shares >= 2 / 3).all() | (shares <= 1 / 3).all()).all():
        verdict = "The short training finds the same parts"
    else:
        verdict = "The short training does not find the same parts"
    return {"verdict": verdict, "decision": _by_training(decision), "mlp": _by_training(mlp)}


def _by_training(shows: "pd.Series[bool]") -> str:
    """Return the runs of each training that show something, in words."""
    clauses = []
    for name, runs_of_training in shows.groupby(level="training", sort=False):
        clauses.append(f"{of_runs(runs_of_training.droplevel(0))} with the recipe “{name}”")
    return " and in ".join(clauses)


def final_norms(curves: pd.DataFrame) -> str:
    """Return the mean squared norm at the end of each training, such as `480 (ours, paper)`.

    `curves` has the `squared norm` of each `training` and `run`, in the order of the steps.
    """
    norms = curves.dropna(subset="squared norm").groupby(["training", "run"], sort=False)
    means = norms["squared norm"].last().groupby(level="training", sort=False).mean()
    return " and ".join(f"{norm:.0f} ({name})" for name, norm in means.items())


# ---- longer sums


def without_parts(means: pd.DataFrame, head: str, mlp: str) -> dict[str, float]:
    """Return the mean accuracies without the decision head and without an MLP (Fig. 19).

    Args:
        means: Accuracies by `ablation` and `carry_in` (`plots.outcomes.by_carry_in`).
        head: The label of the decision head, the same for each run.
        mlp: The label of the MLP.
    """
    by_part = means.groupby(["ablation", "carry_in"])[["accuracy", "corrected"]].mean()
    return {
        "mlp_carry": by_part.accuracy[mlp, "carry-in"],
        "mlp_corrected": by_part.corrected[mlp, "carry-in"],
        "mlp_rest": by_part.accuracy[mlp, "no carry-in"],
        "head_carry": by_part.accuracy[head, "carry-in"],
        "head_rest": by_part.accuracy[head, "no carry-in"],
    }


def finetuned_sums(exact: pd.DataFrame, n_digits: Mapping[int, int]) -> dict[str, str]:
    """Return the mean exact match before and after finetuning, by length of the sums (Fig. 25).

    Args:
        exact: The `exact match` by run, `sums` (such as `6 digits`) and `finetuning`.
        n_digits: The length of the sums, by the number at the end of the word's name.
    """
    means = exact["exact match"].groupby(level=["sums", "finetuning"]).mean()
    words = {}
    for ending, length in n_digits.items():
        for when in ("before", "after"):
            words[f"{when}{ending}"] = f"{means[f'{length} digits', when]:.2f}"
    return words


def attention_words(side: tuple[pd.DataFrame, Arrays]) -> dict[str, Any]:
    """Return the words for attention in models of longer sums (Fig. 21, 23).

    `side` has `findings.lengths.attention_summary`, and the arrays that `shares_by_class` draws.
    """
    summary, classes = side
    by_run = summary.set_index("run")
    last_layer = by_run["decision head"].iloc[0].partition(":")[0]
    staircases = {
        "digits": by_run.filter(like="between").min(axis=1),
        "rows_first": by_run.filter(like="layer 0").min(axis=1),
        "rows_last": by_run.filter(like=f"layer {last_layer}").min(axis=1),
    }
    to_right = classes["right"].swapaxes(0, 1)  # [head, class, position]
    head = int(to_right.mean((1, 2)).argmax())
    carry_in = carries.carry_in(to_right.shape[-1] + 1)[:, :-1].numpy()
    words = {name: weakest >= PARTNER_ATTENTION for name, weakest in staircases.items()}
    return words | {
        "weakest": ", ".join(f"{x:.2f}" for x in staircases["digits"]),
        "ahead": ", ".join(f"{x:.2f}" for x in by_run["ahead"]),
        "head": f"{last_layer}:{head}",
        "decides": f"{last_layer}:{int(classes['decision_head'])}",
        "carry": f"{to_right[head][carry_in].mean():.2f}",
        "rest": f"{to_right[head][~carry_in].mean():.2f}",
    }


def decodable(separations: pd.DataFrame, n_long: int) -> dict[str, Any]:
    """Return, for each step, the runs in which it can be decoded at all positions of a kind.

    (Fig. 22, 24.)

    `separations` are those of `findings.lengths`. The first `n_long` positions are long, the
    others trained.
    """
    words: dict[str, Any] = {}
    kinds = np.where(separations.position < n_long, "long", "trained")
    for (step, kind), rows in separations.groupby(["step", kinds]):
        worst = rows.groupby("run").accuracy.min()
        words[f"{step}_{kind}"] = worst >= SEPARATING_ACCURACY
        words[f"{step}_{kind}_worst"] = ", ".join(f"{x:.3f}" for x in worst)
    return words


def forgetful(side: Arrays) -> dict[str, Any]:
    """Return the runs of each group that forget (Fig. 20); a dash for a group that is not there.

    `side` has the columns of `findings.lengths.forgetting` as arrays `fate …`.
    """
    fates = pd.DataFrame(
        {name.removeprefix("fate "): x for name, x in side.items() if name.startswith("fate ")}
    )
    words: dict[str, Any] = {}
    for name, group in {"forget": "unprimed", "forget_primed": "primed"}.items():
        runs_of_group = fates[fates.group == group].set_index("run")
        words[name] = lengths.forgets(runs_of_group) if len(runs_of_group) else MISSING
    return words


def forgetting(fates: pd.DataFrame) -> str:
    """Return a clause for each run on how its exact match falls again (Fig. 20).

    `fates` are those of `findings.lengths.forgetting`; `first to go` has the first positions that
    a run loses, in words.
    """
    clauses = []
    for _, run in fates.iterrows():
        first = run["first to go"]
        lost = "and no position is lost" if first == "none" else f"position {first} first"
        clauses.append(
            f"run {run['run']} falls from {run['best']:.2f} at epoch {run['peak']} of"
            f" {run['epochs']} to {run['last']:.2f}, {lost}"
        )
    return "; ".join(clauses)


def staircase_falls(steps: pd.DataFrame) -> dict[str, Any]:
    """Return the runs in which a staircase falls at long positions, and its path (Fig. 20).

    It is that of the answer rows in the last layer, without priming.
    """
    unprimed = steps[(steps.group == "unprimed") & (steps.staircase == steps.staircase.max())]
    breaks = {}
    paths = []
    for run, weakest in unprimed.sort_values("epoch").groupby("run")["weakest long"]:
        stands = weakest >= PARTNER_ATTENTION
        breaks[run] = bool((stands.cummax() & ~stands).any())
        paths.append(" → ".join(f"{x:.2f}" for x in weakest))
    return {"breaks": breaks, "path": "; ".join(paths)}


def final_mlp_paths(correlations: pd.DataFrame) -> dict[str, Any]:
    """Return each run's correlation without the final MLP by epoch, and where it rises (App. H)."""
    paths = {run: rows.correlation.tolist() for run, rows in correlations.groupby("run")}
    in_words = [" → ".join(f"{x:.2f}" for x in path) for path in paths.values()]
    return {
        "mlp_path": minus_signs("; ".join(in_words)),
        "mlp_rises": {run: path[-1] > path[0] for run, path in paths.items()},
    }


def primed_parts(
    side: tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame], n_long: int
) -> dict[str, Any]:
    """Return the words for the steps that a primed model decodes, and for its parts (Fig. 24).

    `side` has `findings.lengths.separations`, what `findings.lengths.part_costs` gives for each
    run, and accuracies by ablated part, kind of digit and position.
    """
    separations, costs, accuracies = side
    words = decodable(separations, n_long)
    for name in ("carried", "corrected", "trained", "spared"):
        listed = ", ".join(f"{round(x, 2) + 0:.2f}" for x in costs[name])  # no -0.00
        words[name] = minus_signs(listed)
    without_carry_in = accuracies[accuracies.digits == "without a carry-in"]
    means = without_carry_in.groupby("without", sort=False).accuracy.mean()
    losses = (means["intact"] - means).round(2)
    needed = [f"{part} ({loss:.2f})" for part, loss in losses.items() if loss >= lengths.PART_LOSS]
    return words | {
        "head": ", ".join(costs["head"]),
        "spares": lengths.spares_long_carries(costs.set_index("run")),
        "needed": ", ".join(needed) or "none",
    }


# ---- language models


def published_models(authors: pd.DataFrame | None) -> dict[str, float]:
    """Return the author's accuracies of each published model, and shares of carrying mistakes.

    They are NaN where he released nothing. `authors` has a row for each `model` and `kind`.
    """
    columns = {"": "right", "_carry": "carry_share", "_chance": "chance"}
    words = {}
    rows: dict[tuple[str, str], Any] = {}
    for _, row in authors.iterrows() if authors is not None else ():
        rows[row["model"], row["kind"]] = row
    for key, published in MODELS.items():
        intact = rows.get((published.title, "intact"), {})
        for ending, column in columns.items():
            words[f"{key}{ending}"] = intact.get(column, np.nan)
    alpaca = rows.get((MODELS["alpaca"].title, "addition heads"), {})
    return words | {"alpaca_without": alpaca.get("right", np.nan)}


def ablated_pairs(answers: pd.DataFrame) -> dict[str, Any]:
    """Return the accuracies of a model without frequent pairs of heads, and without random ones.

    `costlier` counts the frequent pairs that cost more than each random one (Tab. 2).
    """
    frequent = answers.right[answers.kind == "frequent pair"]
    random = answers.right[answers.kind == "random pair"]
    return {
        "costlier": (frequent < random.min()).sum(),
        "n_frequent": len(frequent),
        "frequent": spread(frequent),
        "random": spread(random),
    }


def fading(table: pd.DataFrame) -> dict[str, Any]:
    """Return where a carry-in can be told best and then fades, by digit of the answer (Fig. 6).

    `table` has a row for each digit, the first one first; it is empty for a recording.
    """
    later = table.iloc[1:]
    words: dict[str, Any] = {"fades": MISSING, "third": MISSING, "third_best": float("nan")}
    if len(table):
        carry, digit = later["carry-in"], later["nearest to the digit’s centre"]
        fades = (carry["at the end"] < carry["best"]) & (digit["at the end"] > digit["there"])
        words["fades"] = f"{int(fades.sum())} of {len(fades)}"
    if "third" in later.index:
        words["third"] = str(later.loc["third", ("carry-in", "after the")])
        words["third_best"] = later.loc["third", ("carry-in", "best")]
    return words


def spread(values: "pd.Series[float]") -> str:
    """Return the range and the mean of some values; a dash if there are none."""
    if not len(values):
        return MISSING
    return f"{values.min():.2f} to {values.max():.2f} (mean {values.mean():.2f})"


def small_model(record: Mapping[str, Any]) -> str:
    """Return sentences on the training of our own small language model, the first good one tried.

    `record` is that of its training (`llm.recordings.small_training`).
    """
    ladder = record.get("ladder")
    if not ladder:
        reached = record["history"][-1]["accuracy"]
        ladder = [record["recipe"] | {"accuracy": reached, "parameters": record["parameters"]}]
    *earlier, last = ladder
    sentences = []
    for size in earlier:
        sentences.append(
            f"A model of width {size['width']} ({size['parameters']:,} parameters)"
            f" reached {size['accuracy']:.3f}."
        )
    minutes = max(1, round(record["seconds"] / 60))
    sentences.append(
        f"This page's model has width {last['width']} ({last['parameters']:,} parameters)"
        f" and reached {last['accuracy']:.3f} on other sums after {record['steps']:,} steps,"
        f" which took {minutes} minutes on a {record['device']}."
    )
    return " ".join(sentences)
