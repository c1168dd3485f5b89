"""One source's weights and learning curves, by group, and surveys of its runs.

Several rows of the ledger share a survey, so it is made once. Runs are surveyed in parallel.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from carry_core import runs
from carry_core.errors import BadInput
from carry_core.files import ROOT
from carry_core.model import Transformer
from carry_core.runs import History
from carry_core.sums import Numbers
from carry_paper import author, catalogue
from carry_paper.findings.survey import Need, Survey, fixed_sums, survey
from carry_train import groups

T = TypeVar("T")


class Evidence:
    """One source's weights and learning curves, and the surveys that rows of the ledger share.

    A missing or damaged file raises `BadInput`, which says how to get it.
    """

    def __init__(
        self,
        source: str,
        needs: Mapping[str, Need] | None = None,
        report: Callable[[str], None] = lambda done: None,
        selection: Mapping[str, Mapping[str, Any]] | None = None,
        surveyed: Callable[[str], tuple[Numbers, Numbers]] | None = None,
    ) -> None:
        """Prepare for a source; nothing is loaded yet.

        Args:
            source: `ours` or `author`.
            needs: What has to be surveyed, by group.
            report: A function that is called after each survey, with the name of its run.
            selection: Keyword arguments of `catalogue.load` by group, which choose its runs.
            surveyed: A function that returns the sums on which a group is surveyed;
                `fixed_sums` if None.
        """
        runs.folder(source)
        self.source = source
        self.needs = dict(needs or {})
        self.report = report
        self.selection = selection or {}
        self.surveyed = surveyed or fixed_sums
        self._surveys: dict[str, dict[int, Future[Survey]]] = {}

    # ---- weights and learning curves

    def has(self, group: str) -> bool:
        """Return True if the group's weights can be loaded."""
        try:
            self.group(group)
        except BadInput:
            return False
        return True

    def group(self, group: str) -> catalogue.GroupRuns:
        """Return the group's runs."""
        return self._load(catalogue.load, group, "weights", "weights")

    def by_the_papers_epochs(self, group: str) -> catalogue.GroupRuns:
        """Return the group's runs, if their epochs can be counted as the paper's.

        Raises:
            BadInput: They were trained by a recipe other than the paper's.
        """
        loaded = self.group(group)
        recipe = loaded.record["recipe"]
        if recipe not in ("paper", "author"):
            raise BadInput(
                f"It needs {group} at an epoch of the recipe “paper”: the epochs of “{recipe}” "
                "differ."
            )
        return loaded

    def curves(self, group: str) -> History:
        """Return the group's learning curves, by epoch.

        Raises:
            BadInput: There are none, or the runs' training is too short to be counted in epochs.
        """
        if self.source == "ours" and self.has(group):
            self.group(group).check_epochs()
        return self._load(catalogue.load_curves, group, "history", "learning curves")

    def _load(self, load: Callable[..., T], group: str, kind: str, words: str) -> T:
        """Return what `load` returns; messages call it `words`, the author's release `kind`."""
        try:
            return load(group, self.source, **self.selection.get(group, {}))
        except BadInput as error:
            if self.source == "author" and not author.holds(kind, group):
                raise BadInput(f"The author's release has no {words} of {group}.") from error
            raise BadInput(str(error).replace(f"{ROOT}/", "")) from error

    def planned_epochs(self, group: str) -> int:
        """Return the epochs of a group's whole training, of which ours may have had only some."""
        if self.source == "ours":
            return self.group(group).planned_epochs
        return groups.find(group).epochs

    # ---- what is measured on each run

    def models(self, group: str, epoch: int | None = None) -> dict[int, Transformer]:
        """Return each run's model, at the end or at one of the paper's epochs."""
        loaded = self.group(group)
        return {run: loaded.model(run, epoch) for run in loaded.numbers}

    def each(
        self, group: str, function: Callable[[int, Transformer], T], epoch: int | None = None
    ) -> dict[int, T]:
        """Return `function(run, model)` for each run of a group, computed in parallel."""
        models = self.models(group, epoch)
        with one_thread_each() as pool:
            return dict(zip(models, pool.map(function, models, models.values()), strict=True))

    def surveys(self, group: str) -> dict[int, Survey]:
        """Return a survey of each run of a group, or raise the error that it raised.

        The first call surveys all groups that are needed and can be loaded.
        """
        if group not in self._surveys:
            waiting = [name for name in self.needs if name not in self._surveys and self.has(name)]
            self._survey_groups({name: self.group(name) for name in (group, *waiting)})
        return {run: future.result() for run, future in self._surveys[group].items()}

    def n_sums(self, group: str) -> int:
        """Return the number of sums on which a group is surveyed."""
        return len(self.surveyed(group)[0])

    def _survey_groups(self, loaded_groups: Mapping[str, catalogue.GroupRuns]) -> None:
        """Survey all runs of some groups, starting with those that take longest."""

        def size(name: str) -> int:
            config = loaded_groups[name].config
            return config.layers * config.d_ff

        with one_thread_each() as pool:
            futures: list[Future[Survey]] = []
            for name in sorted(loaded_groups, key=size, reverse=True):
                loaded = loaded_groups[name]
                by_run = {run: pool.submit(self._survey, loaded, run) for run in loaded.numbers}
                self._surveys[name] = by_run
                futures += by_run.values()
            wait(futures)

    def _survey(self, loaded: catalogue.GroupRuns, run: int) -> Survey:
        a, b = self.surveyed(loaded.group)
        need = self.needs.get(loaded.group, Need())
        try:
            return survey(loaded.model(run), a, b, need)
        finally:
            self.report(f"{loaded.group} run {run}")


@contextmanager
def one_thread_each() -> Iterator[ThreadPoolExecutor]:
    """Yield a pool of as many workers as PyTorch would use threads, each with one thread.

    So no bit of a result depends on the number of cores.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    pool = ThreadPoolExecutor(threads)
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # after Ctrl-C, nothing new is started
        torch.set_num_threads(threads)
