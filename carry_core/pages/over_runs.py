"""What `findings.lengths` measures, for every run that a page shows: by whose run it is, and epoch by epoch."""

from collections.abc import Mapping, Sequence

from jaxtyping import Float, Int
from torch import Tensor

from carry_core.findings import heads, lengths
from carry_core.findings.lengths import Heads, Separation
from carry_core.measure import ClassAccuracies
from carry_core.pages import at_hand
from carry_core.pages.at_hand import AtHand


def chosen_runs(shown: AtHand) -> dict[str, int]:
    """The run of each source that a page shows: the one asked for, or else the one whose decision head matters most."""
    found = {}
    for loaded in shown:
        models = {number: loaded.model(number, shown.epoch) for number in loaded.numbers}
        if shown.run in models:
            found[loaded.source] = shown.run
        elif len(models) == 1:
            found[loaded.source] = loaded.numbers[0]
        else:
            found[loaded.source] = heads.run_most_hurt_by_decision_head(heads.without_decision(models.items()))
    return found


def heads_of(
    shown: AtHand, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"], *, snapshots: bool = False
) -> dict[str, list[tuple[str, Heads]]]:
    """`Heads` of every run that a page shows, by whose it is: at the page's epoch, or at all that are kept."""
    found: dict[str, list[tuple[str, Heads]]] = {}
    for loaded in shown:
        epochs = at_hand.kept(loaded) if snapshots else (shown.epoch or loaded.record["epochs"],)
        for run in loaded.numbers:
            measured = [(at_hand.epoch_label(loaded, e), lengths.heads(loaded.model(run, e), a, b)) for e in epochs]
            found[f"{at_hand.mark(loaded)} {run}"] = measured
    return found


def separations(shown: AtHand, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"]) -> dict[str, Separation]:
    """`Separation` of every run that a page shows, by whose it is."""
    return {
        f"{at_hand.mark(loaded)} {run}": lengths.separation(loaded.model(run, shown.epoch), a, b)
        for loaded in shown
        for run in loaded.numbers
    }


def accuracies(
    shown: AtHand, n_digits: int, n_examples: int, seed: int = 0, *, snapshots: bool = False
) -> list[tuple[str, int, tuple[float, Float[Tensor, " pos"]]]]:
    """`accuracy` of every run that a page shows, on sums of `n_digits` digits and on the longest, epoch by epoch."""
    found = []
    for loaded in shown:
        for run in loaded.numbers:
            for epoch in at_hand.kept(loaded) if snapshots else (shown.epoch or loaded.record["epochs"],):
                for size in (n_digits, loaded.config.width):
                    name = f"{at_hand.mark(loaded)} {run}\n{at_hand.epoch_label(loaded, epoch)}"
                    found.append((name, size, lengths.accuracy(loaded.model(run, epoch), size, n_examples, seed)))
    return found


def by_epoch(found: Mapping[str, Sequence[tuple[str, Heads]]]) -> list[tuple[str, Heads]]:
    """What `heads_of` found, one after the other, each with its run and its epoch."""
    return [(f"{name}\n{epoch}", each) for name, every in found.items() for epoch, each in every]


def correlations_over_epochs(
    shown: AtHand, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"], n_digits: int
) -> dict[str, dict[str, tuple[float, ClassAccuracies]]]:
    """`trained_correlation` of every run that a page shows, at every epoch that is kept, by whose it is (App. H)."""
    return {
        f"{at_hand.mark(loaded)} {run}": {
            at_hand.epoch_label(loaded, epoch): lengths.trained_correlation(loaded.model(run, epoch), a, b, n_digits)
            for epoch in at_hand.kept(loaded)
        }
        for loaded in shown
        for run in loaded.numbers
    }
