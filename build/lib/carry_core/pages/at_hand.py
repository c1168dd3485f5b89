"""The runs of a group that a page shows: which of them, and at which epoch."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from carry_core import author, groups, runs
from carry_core.errors import BadInput
from carry_core.groups import RECIPES
from carry_core.runs import History, Runs


@dataclass(frozen=True)
class AtHand:
    """Runs of a group as a page shows them.

    Attributes:
        runs: all of them.
        run: the one that was asked for, None where a rule is to choose.
        epoch: of a snapshot; None for the last.
    """

    runs: Runs
    run: int | None = None
    epoch: int | None = None

    def __iter__(self) -> Iterator[Runs]:
        yield self.runs

    @property
    def history(self) -> History:
        """Their learning curves."""
        return runs.history(self.runs.group, self.runs.source)

    @property
    def told(self) -> str:
        """Where the weights come from; for a recipe with fewer epochs than the paper's, which epoch is shown."""
        if not self.runs.stands_in:
            return self.runs.provenance
        recipe = RECIPES[self.runs.record["recipe"]]
        here = {papers: ours for ours, papers in recipe.snapshots(groups.find(self.runs.group)).items()}
        if self.epoch not in here:
            return self.runs.provenance
        return (
            f"{self.runs.provenance} Epoch {self.epoch} of that recipe is epoch {here[self.epoch]} here, the same share"
            " of the whole."
        )


def check(
    *,
    source: str,
    group: str,
    run: int | None = None,
    epoch: int | None = None,
    n_examples: object = runs.MIN_EXAMPLES,
    seed: object = 0,
) -> AtHand:
    """As `runs.check`, for a page that can also show snapshots.

    Raises:
        BadInput: a parameter is not what it should be; the message says which and what was expected.
    """
    loaded = runs.check(source=source, group=group, run=run, n_examples=n_examples, seed=seed)
    loaded.model(loaded.numbers[0], epoch)
    return AtHand(loaded, run, epoch)


def check_each(
    wanted: Mapping[str, str], *, source: str, n_examples: object = runs.MIN_EXAMPLES, seed: object = 0
) -> dict[str, AtHand]:
    """As `check`, for a page about several groups; goes without those that the author's release does not have.

    Args:
        wanted: groups, by what the page calls them.
        source: `ours` or `author`.
        n_examples: how many sums.
        seed: of the draw.

    Raises:
        BadInput: as `check`, or the release has none of them.
    """
    there = {
        name: group
        for name, group in wanted.items()
        if source != "author" or author.holds("weights", groups.find(group).name)
    }
    if not there:
        raise BadInput(f"The author's release has no weights of {', '.join(wanted.values())}: expected source='ours'.")
    given = {"source": source, "n_examples": n_examples, "seed": seed}
    return {name: check(group=group, **given) for name, group in there.items()}  # type: ignore[arg-type]


def mark(loaded: Runs) -> str:
    """Whose runs they are, for tables, titles and legends; with the epochs where the recipe has more."""
    if loaded.source == "author":
        return "author’s"
    recipe, epochs = loaded.record["recipe"], loaded.record["epochs"]
    reached = groups.reached(loaded.group, recipe, epochs)
    return f"ours ({recipe})" if reached == str(epochs) else f"ours ({recipe}, {reached} epochs)"


def kept(loaded: Runs) -> tuple[int, ...]:
    """The epochs at which its weights are there, as `Runs.model` takes them."""
    return tuple(dict.fromkeys((*loaded.snapshots, loaded.record["epochs"])))


def epoch_label(loaded: Runs, epoch: int) -> str:
    """An epoch of `kept` by the paper's number, with ours behind it where they differ: `epoch 500 (here 12)`."""
    if loaded.source == "author":
        return f"epoch {epoch}"
    group, recipe = groups.find(loaded.group), RECIPES[loaded.record["recipe"]]
    here = {papers: ours for ours, papers in recipe.snapshots(group).items()}
    if epoch in loaded.snapshots:
        papers, own = epoch, here.get(epoch, epoch)
    else:
        papers, own = round(epoch / recipe.share(group)), epoch
    return f"epoch {papers}" if own == papers else f"epoch {papers} (here {own})"
