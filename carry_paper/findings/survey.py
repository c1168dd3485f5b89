"""Everything that the ledger reads off one run, from one pass over its sums; and all that a source has, as `Evidence`.

The residual stream after the last attention is kept for all of them, at the answer's positions (0.8
GB for the 500,500 sums of three digits). Whatever is done to the final MLP is then cheap: taking it
out, choosing its carry neurons on all sums and ablating them, doing so again on draws of the
paper's size.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from carry_core import carries, curves, groups, measure, runs, sums
from carry_core.errors import BadInput
from carry_core.fast.layers import product
from carry_core.fast.plain import is_plain
from carry_core.files import ROOT
from carry_core.interventions import Ablation
from carry_core.measure import ClassAccuracies
from carry_core.model import Transformer
from carry_core.runs import History
from carry_core.sums import Numbers
from carry_paper import author

# how often the dissection is drawn again; sums per class in a draw of the paper's
DRAWS, DRAWN = 10, 20_000
SAMPLE = 20_000  # random sums where a finding does not need all
# random ones of a run's sums for ablations before the last layer: each costs as much as the run
# itself
EARLY = 100_000
Which = Int[Tensor, " _"]  # some of the sums, as indices in ascending order
CHUNK = 2_048  # sums that pass through the last MLP at once: of each some hundred are in a draw
T = TypeVar("T")


@dataclass(frozen=True)
class Need:
    """What has to be surveyed on each run of a group, besides the final MLP's ablation."""

    ablations: frozenset[Ablation] = frozenset()
    dissect: bool = False

    def __or__(self, other: "Need") -> "Need":
        return Need(self.ablations | other.ablations, self.dissect or other.dissect)


@dataclass(frozen=True)
class Dissected:
    """How many carry neurons there are (Sec. 5), and what the model gets right without them."""

    neurons: int
    cells: ClassAccuracies


@dataclass(frozen=True)
class Survey:
    """What was measured on one run."""

    # under each ablation, always also the final MLP's: it costs nothing
    cells: Mapping[Ablation, ClassAccuracies]
    dissected: Dissected | None = None  # neurons chosen on all sums and ablated on all sums
    # the same, chosen on one random draw and ablated on another, `DRAWS` times
    draws: tuple[Dissected, ...] = ()

    @property
    def heads(self) -> list[Ablation]:
        """Each head that was ablated by itself, costliest first; `measure.decision_head` chooses on a fixed draw."""
        alone = [
            part
            for part in self.cells
            if part == Ablation(heads=part.heads) and len(part.heads) == 1
        ]
        return sorted(alone, key=lambda head: self.cells[head].exact_match)

    @property
    def without_mlp(self) -> ClassAccuracies:
        """What is right without the final MLP."""
        return next(cells for ablation, cells in self.cells.items() if ablation.mlps)


@torch.inference_mode()
def survey(model: Transformer, a: Numbers, b: Numbers, need: Need) -> Survey:
    """Survey one run on sums of every class; what is ablated before the last layer on `EARLY` of them.

    Raises:
        BadInput: The model's weights do not say what it computes, as in `plain.is_plain`.
    """
    if not is_plain(model):
        raise BadInput(
            "A survey reads the model's weights: expected a Transformer without hooks of PyTorch "
            "and without wrapped or replaced parts, such as `load(...).model(0)`."
        )
    rest, mlp, without_mlp = Rest(model, a, b), measure.final_mlp(model), list[Tensor]()

    def see(name: str, mid: Tensor) -> Tensor:
        if name == f"blocks.{model.config.layers - 1}.resid_mid":
            without_mlp.append(model.unembed(model.norm(mid)).argmax(-1))
            if need.dissect:
                rest.keep(mid)
        return mid

    last = f"blocks.{model.config.layers - 1}."
    early = [
        part
        for part in need.ablations
        if any(last not in name for name in part.changes(model.config))
    ]
    late = sorted(need.ablations - {mlp, *early}, key=str)
    guesses = measure.predict(model, a, b, late, watch=see)
    # first, as `Survey.without_mlp` takes it
    cells = {mlp: measure.score(torch.cat(without_mlp), a, b)}
    cells |= {part: measure.score(guess, a, b) for part, guess in zip(late, guesses, strict=True)}
    if early:
        some = torch.randperm(len(a), generator=torch.Generator().manual_seed(0))[:EARLY]
        cells |= zip(early, measure.class_accuracies(model, a[some], b[some], early), strict=True)
    if not need.dissect:
        return Survey(cells)
    every, generators = (
        torch.arange(len(a)),
        [torch.Generator().manual_seed(seed) for seed in range(DRAWS)],
    )
    of_all, *of_draws = rest.dissect(
        [(every, every), *((rest.draw(g), rest.draw(g)) for g in generators)]
    )
    return Survey(cells, of_all, tuple(of_draws))


class Rest:
    """A run from its last attention on, for many sums: `mid` is the stream there, at the answer's positions."""

    def __init__(self, model: Transformer, a: Numbers, b: Numbers) -> None:
        width = model.config.width
        self.model, self.a, self.b, self.block = model, a, b, model.blocks[model.config.layers - 1]
        self.mid = torch.empty(len(a), width, model.config.d_model)  # takes memory as it is filled
        self.filled, self.chunks = (
            0,
            [slice(start, start + CHUNK) for start in range(0, len(a), CHUNK)],
        )
        self.task = carries.classify(a, b, width)
        self.members = [
            (self.task == task).nonzero().flatten() for task in range(len(carries.patterns(width)))
        ]

    def keep(self, mid: Float[Tensor, "batch pos d_model"]) -> None:
        """Fill `mid`, batch after batch."""
        self.mid[self.filled : self.filled + len(mid)] = mid
        self.filled += len(mid)

    def draw(self, generator: torch.Generator) -> Which:
        """`DRAWN` sums of every class."""
        drawn = [m[torch.randint(len(m), (DRAWN,), generator=generator)] for m in self.members]
        return torch.cat(drawn).sort().values

    def dissect(self, pairs: Sequence[tuple[Which, Which]]) -> list[Dissected]:
        """Choose the carry neurons on some sums and ablate them on others."""
        chosen_on, ablated_on = zip(*pairs, strict=True)
        neurons = self.carry_neurons(chosen_on)
        return [
            Dissected(int(chosen.sum()), measure.score(guess, self.a[which], self.b[which]))
            for chosen, which, guess in zip(
                neurons, ablated_on, self.answers(~neurons, ablated_on), strict=True
            )
        ]

    def carry_neurons(self, chosen_on: Sequence[Which]) -> Bool[Tensor, "set neuron"]:
        """As `heads.carry_neurons`, on each set of sums, once `mid` is filled; in one pass, since sets overlap."""
        counts = torch.stack([torch.bincount(which, minlength=len(self.a)) for which in chosen_on])
        member = torch.stack([self.task == task for task in range(len(self.members))])
        total = torch.zeros(len(counts), len(member), self.model.config.d_ff, dtype=torch.float64)
        size = torch.zeros(len(counts), len(member), 1, dtype=torch.float64)
        for part in self.chunks:
            post = self.block.up(self.block.norm(self.mid[part, 0])).relu()
            weight = (counts[:, None, part] * member[:, part]).to(post)  # how often a sum was drawn
            total += product(weight.flatten(0, 1), post.mT).view(total.shape)
            size += weight.sum(-1, keepdim=True)
        mean = total / size
        return (mean[:, 1:] > mean[:, :1]).any(1)

    def answers(
        self, kept: Bool[Tensor, "set neuron"], asked: Sequence[Which]
    ) -> list[Int[Tensor, "_ pos"]]:
        """What the model answers with the kept neurons of the last MLP only, each set on its sums; int8."""
        # what all keep is computed once
        up, down, in_all = self.block.up, self.block.down, kept.all(0)
        in_some = kept.any(0) & ~in_all
        found = [torch.empty(len(which), self.mid.shape[1], dtype=torch.int8) for which in asked]
        added = [(down.weight[:, in_some] * chosen).contiguous() for chosen in kept[:, in_some]]
        first, others = ((up.weight[some], up.bias[some]) for some in (in_all, in_some))
        second = down.weight[:, in_all].contiguous()
        for part in self.chunks:
            mid = self.mid[part]
            x = self.block.norm(mid)
            shared = mid + product(product(x, *first).relu(), second, down.bias)
            post = product(x, *others).relu()
            for guess, which, weight in zip(found, asked, added, strict=True):
                ends = torch.searchsorted(which, torch.tensor([part.start, part.stop]))
                here = which[slice(*ends)] - part.start
                resid = shared[here] + product(post[here], weight)
                guess[slice(*ends)] = self.model.unembed(self.model.norm(resid)).argmax(-1)
        return found


class Evidence:
    """One source's weights and learning curves, and the surveys that several rows of the ledger share.

    What is missing or damaged raises `BadInput`, which says how to get it.
    """

    def __init__(
        self,
        source: str,
        needs: Mapping[str, Need] | None = None,  # by group
        # called after each survey, with which run it was of
        report: Callable[[str], None] = lambda done: None,
        # by group, which runs, as `runs.load` takes them
        chosen: Mapping[str, Mapping[str, Any]] | None = None,
        # a group's sums, if not `fixed_sums`
        surveyed: Callable[[str], tuple[Numbers, Numbers]] | None = None,
    ) -> None:
        runs.folder(source)
        self.source, self.needs, self.report = source, dict(needs or {}), report
        self.chosen, self.surveyed = chosen or {}, surveyed or fixed_sums
        self._surveys: dict[str, dict[int, Future[Survey]]] = {}

    def has(self, group: str) -> bool:
        """Whether the group's weights are there and whole."""
        try:
            self.group(group)
        except BadInput:
            return False
        return True

    def group(self, group: str) -> runs.Runs:
        """The group's runs."""
        return self._load(runs.load, group, "weights", "weights")

    def curves(self, group: str) -> History:
        """The group's learning curves."""
        return self._load(curves.load_curves, group, "history", "learning curves")

    def _load(self, load: Callable[..., T], group: str, kind: str, what: str) -> T:
        try:
            return load(group, self.source, **self.chosen.get(group, {}))
        except BadInput as error:
            if self.source == "author" and not author.holds(kind, group):
                raise BadInput(f"The author's release has no {what} of {group}.") from error
            raise BadInput(str(error).replace(f"{ROOT}/", "")) from error

    def planned_epochs(self, group: str) -> int:
        """Epochs of the whole training of a group; ours may have had a part of them only."""
        return (
            self.group(group).planned_epochs if self.source == "ours" else groups.find(group).epochs
        )

    def training(self, group: str) -> str:
        """How a group was trained, if not as the paper's: the recipe, and how far it got; else nothing."""
        if self.source != "ours" or not self.has(group):
            return ""
        loaded = self.group(group)
        return loaded.training if loaded.stand_in else ""

    def models(self, group: str, epoch: int | None = None) -> dict[int, Transformer]:
        """Each run's model, at the end or at one of the paper's epochs."""
        loaded = self.group(group)
        return {run: loaded.model(run, epoch) for run in loaded.numbers}

    def each(
        self, group: str, of: Callable[[int, Transformer], T], epoch: int | None = None
    ) -> dict[int, T]:
        """`of(run, model)` for each run of a group, several at once."""
        models = self.models(group, epoch)
        with one_thread_each() as pool:
            return dict(zip(models, pool.map(of, models, models.values()), strict=True))

    def surveys(self, group: str) -> dict[int, Survey]:
        """A survey of each run, or what it raised; the first call surveys all groups that are needed and at hand."""
        if group not in self._surveys:
            waiting = [name for name in self.needs if name not in self._surveys and self.has(name)]
            several = {name: self.group(name) for name in (group, *waiting)}
            with one_thread_each() as pool:
                longest_first = sorted(
                    several.items(), key=lambda each: -each[1].config.layers * each[1].config.d_ff
                )
                for name, loaded in longest_first:
                    self._surveys[name] = {
                        run: pool.submit(self._survey, loaded, run) for run in loaded.numbers
                    }
                wait([future for name in several for future in self._surveys[name].values()])
        return {run: future.result() for run, future in self._surveys[group].items()}

    def _survey(self, loaded: runs.Runs, run: int) -> Survey:
        try:
            return survey(
                loaded.model(run),
                *self.surveyed(loaded.group),
                self.needs.get(loaded.group, Need()),
            )
        finally:
            self.report(f"{loaded.group} run {run}")


@contextmanager
def one_thread_each() -> Iterator[ThreadPoolExecutor]:
    """As many workers as PyTorch would use threads, with one thread each: the number of cores changes no bit."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    pool = ThreadPoolExecutor(threads)
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # after Ctrl-C nothing that waits is begun
        torch.set_num_threads(threads)


@cache
def fixed_sums(group: str) -> tuple[Tensor, Tensor]:
    """All sums of three digits; of more, a draw of the paper's size from every class."""
    n_digits = groups.find(group).n_digits
    return sums.all_sums(n_digits) if n_digits <= 3 else measure.sample(DRAWN, n_digits, seed=0)


def random_sums(
    n_digits: int = 3, count: int | None = None, seed: int = 0
) -> tuple[Numbers, Numbers]:
    """The same random sums every time, `SAMPLE` if no other number is given."""
    return sums.long_sums(count or SAMPLE, n_digits, torch.Generator().manual_seed(seed))
