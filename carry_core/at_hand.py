"""What a page can show of a group whose weights may not be there yet: the author's first, ours beside them.

Some groups take a GPU, or hours. Until our weights of one are there, and are those of the paper's own recipe, its page
shows the author's where they were imported, ours where there are any, and says how to get what is missing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from carry_core import draws, groups, release, runs
from carry_core.errors import BadInput
from carry_core.groups import RECIPES
from carry_core.runs import History, Runs


@dataclass(frozen=True)
class AtHand:
    """A group's runs, source by source, in the order in which a page shows them.

    Attributes:
        found: the runs by source; empty if there are none.
        told: for the page: where each source's weights come from, or how to get them.
        run: the run that was asked for, None where a rule is to choose.
        epoch: of a snapshot; None for the last.
    """

    found: dict[str, Runs]
    told: str
    run: int | None = None
    epoch: int | None = None

    def __iter__(self) -> Iterator[Runs]:
        return iter(self.found.values())

    def history(self, source: str) -> tuple[History, ...]:
        """The learning curves of one source if they are there: none or one."""
        return tuple(
            runs.history(loaded.group, source)
            for loaded in self.of(source)
            if (runs.folder(source) / f"{loaded.group}.history.npz").exists()
        )

    def of(self, source: str) -> tuple[Runs, ...]:
        """The runs of one source if they are there: none or one, for a cell that draws them."""
        return (self.found[source],) if source in self.found else ()


def check(
    *,
    awaited: str,
    source: str,
    group: str,
    run: int | None = None,
    epoch: int | None = None,
    n_examples: object = draws.FEWEST,
    seed: object = 0,
) -> AtHand:
    """As `runs.check`, except that our weights of the page's own group may be missing.

    Args:
        awaited: the group that the page is about. Any other that is asked for has to be there.
        source: `ours` or `author`. Asked for ours, a page shows the author's before them unless ours are by the recipe
            of the paper.
        group: whose runs.
        run: a run of any source that is shown.
        epoch: of a snapshot.
        n_examples: how many sums.
        seed: of the draw.

    Raises:
        BadInput: one of them is not what it should be; the message says which and what was expected.
    """
    draws.check(n_examples=n_examples, seed=seed)
    planned = (None, *groups.find(group).snapshots, groups.find(group).epochs)
    if epoch not in planned:
        known = ", ".join(map(str, planned[1:]))
        raise BadInput(f"epoch={epoch!r}: expected an epoch at which {group} is kept, one of {known}.")
    return _gather(group, source, run, epoch, may_wait=source == "ours" and group == awaited)


def check_each(
    wanted: Mapping[str, tuple[str, str]], *, source: str, n_examples: object = draws.FEWEST, seed: object = 0
) -> dict[str, AtHand]:
    """As `check`, for a page about several groups, which goes without those that a source has not got.

    Args:
        wanted: the awaited group and the group that was asked for, by name.
        source: `ours` or `author`; the author's release has to have one of them at least.
        n_examples: how many sums.
        seed: of the draw.

    Raises:
        BadInput: as `check`.
    """
    draws.check(n_examples=n_examples, seed=seed)
    found = {
        name: _gather(group, source, None, None, may_wait=group == awaited) for name, (awaited, group) in wanted.items()
    }
    if source == "author" and not any(shown.found for shown in found.values()):
        for _, group in wanted.values():
            runs.load(group, source)  # says what is missing, and how to get it
    return found


def _gather(group: str, source: str, run: int | None, epoch: int | None, *, may_wait: bool) -> AtHand:
    mine = _find(group, source, epoch, may_wait=may_wait)
    found = {source: mine} if mine else {}
    if source == "ours" and may_wait and (mine is None or mine.stands_in):
        theirs = _find(group, "author", epoch, may_wait=True)
        found = ({"author": theirs} if theirs else {}) | found
    if run is not None:
        _check_run(group, source, found, run)
    sources = [*found, source] if found or source == "author" else ["author", "ours"]
    told = [_told(group, s, found.get(s), epoch) for s in dict.fromkeys(sources)]
    return AtHand(found, "\n\n".join(told), run, epoch)


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


def _find(group: str, source: str, epoch: int | None, *, may_wait: bool) -> Runs | None:
    """The runs; None if their file, or the snapshot in it, is not there and may be awaited."""
    if may_wait and not (runs.folder(source) / f"{group}.safetensors").exists():
        return None
    loaded = runs.load(group, source)
    if may_wait and epoch not in (None, *loaded.snapshots, loaded.record["epochs"]):
        return None
    loaded.model(loaded.numbers[0], epoch)
    return loaded


def _check_run(group: str, source: str, found: dict[str, Runs], run: int) -> None:
    numbers = sorted({number for loaded in found.values() for number in loaded.numbers})
    if type(run) is not int or run not in numbers:
        expected = f"one of {', '.join(map(str, numbers))}" if numbers else "None, since there are no weights yet"
        raise BadInput(f"No run {run!r} of {group} from {source}: expected {expected}.")


def _told(group: str, source: str, loaded: Runs | None, epoch: int | None) -> str:
    at = "" if epoch is None else f" at epoch {epoch}"
    if loaded is None and source == "author":
        if not release.holds("weights", group):
            return f"The author's release has no weights of `{group}`."
        return f"**The author's weights** of `{group}` are not here: `carry import-author DIR` imports them."
    if loaded is None:
        command = f"carry train {group} --recipe quick --precision bf16"
        return f"**Our own weights** of `{group}`{at} are not here yet: `{command}` makes a stand-in."
    text = f"**{'The author’s weights' if source == 'author' else 'Our own weights'}.** {loaded.provenance}"
    if not loaded.stands_in:
        return text
    recipe = RECIPES[loaded.record["recipe"]]
    here = {papers: ours for ours, papers in recipe.snapshots(groups.find(group)).items()}
    if epoch in here:
        text += f" Epoch {epoch} of that recipe is epoch {here[epoch]} here, the same share of the whole."
    return text
