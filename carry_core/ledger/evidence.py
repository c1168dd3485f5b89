"""One source's weights and learning curves, and the passes over them that several rows of the ledger share."""

import json
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor

from carry_core import groups, measure, release, runs, sums
from carry_core.edits import Ablation
from carry_core.errors import BadInput
from carry_core.files import data_dir, sha256
from carry_core.ledger.survey import DRAWN, Survey, survey
from carry_core.model import Transformer

T = TypeVar("T")
Item = TypeVar("Item")


@dataclass(frozen=True)
class Need:
    """What has to be measured on each run of a group, besides the final MLP's ablation."""

    ablations: frozenset[Ablation] = frozenset()
    dissect: bool = False
    squash: bool = False

    def __or__(self, other: "Need") -> "Need":
        return Need(self.ablations | other.ablations, self.dissect or other.dissect, self.squash or other.squash)


NO_NEED = Need()


class Evidence:
    """What a source has.

    Args:
        source: `ours` or `author`.
        needs: for each group, what the rows that are asked for need of it.
        report: called after each run that was measured, with what it was.
    """

    def __init__(
        self, source: str, needs: Mapping[str, Need] | None = None, report: Callable[[str], None] = lambda done: None
    ) -> None:
        runs.folder(source)
        self.source, self.needs, self.report = source, dict(needs or {}), report
        self.used: set[str] = set()  # groups that were asked for; whoever wants to know clears it before
        self._surveys: dict[str, dict[int, Survey]] = {}

    def steps(self) -> int:
        """How many runs have to be surveyed."""
        return sum(len(self._weights(group).numbers) for group in self.needs if self.has(group))

    def has(self, group: str) -> bool:
        """Whether the group's weights are there and whole."""
        try:
            self._weights(group)
        except BadInput:
            return False
        return True

    def group(self, group: str) -> runs.Runs:
        """The group's runs.

        Raises:
            BadInput: they are missing or damaged; says how to get them.
        """
        self.used.add(group)
        return self._weights(group)

    def curves(self, group: str) -> runs.History:
        """The group's learning curves.

        Raises:
            BadInput: they are missing or damaged; says how to get them.
        """
        self.used.add(group)
        return self._found(group, "history.npz", lambda: runs.history(group, self.source))

    def whole(self, group: str) -> int:
        """Epochs of the whole training of a group; ours may have had a part of them only."""
        return self._weights(group).whole if self.source == "ours" else groups.find(group).epochs

    def _weights(self, group: str) -> runs.Runs:
        return self._found(group, "safetensors", lambda: runs.load(group, self.source))

    def _found(self, group: str, suffix: str, read: Callable[[], T]) -> T:
        if not (runs.folder(self.source) / f"{group}.{suffix}").exists():
            what = "weights" if suffix == "safetensors" else "learning curves"
            if self.source == "ours":
                raise BadInput(f"No {what} of {group} yet: `carry train {group}` makes them.")
            if not release.holds("weights" if suffix == "safetensors" else "history", group):
                raise BadInput(f"The author's release has no {what} of {group}.")
            raise BadInput(f"No {what} of {group} at hand: `carry import-author DIR` of the whole release.")
        try:
            return read()
        except BadInput as error:
            raise BadInput(str(error).replace(f"{data_dir()}/", "data/")) from error

    def surveys(self, group: str) -> dict[int, Survey]:
        """A survey of each of the group's runs; the first call surveys all groups that are needed and at hand.

        Several runs at once, on as many threads as PyTorch would use. Each has one thread, so that the number of cores
        changes no bit.

        Raises:
            BadInput: the group is missing or damaged.
        """
        self.used.add(group)
        if group not in self._surveys:
            self._survey([group, *(name for name in self.needs if name not in self._surveys and self.has(name))])
        return self._surveys[group]

    def _survey(self, names: Iterable[str]) -> None:
        loaded = {name: self._weights(name) for name in names}

        def one(pair: tuple[str, int]) -> Survey:
            (group, run), need = pair, self.needs.get(pair[0], NO_NEED)
            parts = sorted(need.ablations, key=str)
            found = survey(loaded[group].model(run), *_sums(group), parts, dissect=need.dissect, squash=need.squash)
            self.report(f"{group} run {run}")
            return found

        pairs = [(group, run) for group, its in loaded.items() for run in its.numbers]
        for (group, run), found in zip(pairs, each(one, pairs), strict=True):
            self._surveys.setdefault(group, {})[run] = found

    def models(self, group: str) -> dict[int, Transformer]:
        """Each run as a model.

        Raises:
            BadInput: the group is missing or damaged.
        """
        return dict(self.group(group).models())

    def recipes(self) -> str:
        """What a reader must know of the groups that were used, if they were not trained as the paper's were."""
        notes = []
        for group in filter(self.has, sorted(self.used) if self.source == "ours" else []):
            loaded = self._weights(group)
            if loaded.stands_in:
                notes.append(f"From {group} by the {loaded.training}.")
        return " ".join(notes)


class Nothing(Evidence):
    """Evidence that has nothing, and only remembers which group it was asked for."""

    def __init__(self) -> None:
        super().__init__("ours")

    def _found(self, group: str, suffix: str, read: Callable[[], T]) -> T:
        raise BadInput(f"No {group}.{suffix}: expected nothing, since only names are asked for.")


def each(of: Callable[[Item], Any], items: Iterable[Item]) -> list[Any]:
    """`of` every item, in order, with one thread for each item and as many items at once as PyTorch has threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    pool = ThreadPoolExecutor(threads)
    try:
        return list(pool.map(of, items))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # after Ctrl-C nothing that waits is begun
        torch.set_num_threads(threads)


@cache
def _sums(group: str) -> tuple[Tensor, Tensor]:
    """All sums of three digits; of more, a draw of the paper's size from every class."""
    n_digits = groups.find(group).n_digits
    return sums.all_sums(n_digits) if n_digits <= 3 else measure.sample(DRAWN, n_digits, seed=0)


def weights(source: str) -> dict[str, str]:
    """The sha256 of every file that a source's rows come from.

    Of the author's, the released files that were imported, by their path in his repository; of ours, the group files.
    """
    folder = runs.folder(source)
    if source == "ours":
        return {f"runs/{path.name}": sha256(path) for path in sorted(folder.glob("*.*")) if path.name[0] != "."}
    path = folder / "sources.json"
    imported = json.loads(path.read_text()) if path.exists() else {}
    return dict(sorted(item for output in imported.values() for item in output["files"].items()))
