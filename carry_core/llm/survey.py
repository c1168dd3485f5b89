"""Everything that Tab. 2 and Fig. 6 need of one language model, in one small file."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from carry_core.errors import BadInput
from carry_core.files import replacing
from carry_core.llm import heads, prompts
from carry_core.llm.answers import WIDTH, Answers, receives
from carry_core.llm.heads import Heads
from carry_core.llm.positions import marks
from carry_core.llm.staircases import SHOWN
from carry_core.sums import digits

FORMAT = "1"
FILE = "survey.safetensors"
KINDS = ("asked", "frequent", "random")


@dataclass(frozen=True)
class Ablated:
    """Answers without some heads; `kind` is one of `KINDS`."""

    heads: Heads
    kind: str
    replies: tuple[str, ...]


@dataclass(frozen=True)
class Survey:
    """What became of it.

    Attributes:
        title: the model's name.
        answers: of the intact model.
        wins: how often each head won each cell of the staircase search.
        shown: the most frequent winners, whose attention is kept.
        mean: their attention between the marked tokens, averaged over prompts.
        std: its standard deviation, with n - 1.
        points: coordinates of the residual stream on its leading axes, after attention and MLP of each layer, where
            each token of the answer is predicted.
        share: the axes' shares of the variance.
        spelled: whether that token is the right digit, and all before it are.
        ablated: answers without heads.
        record: how it was made.
    """

    title: str
    answers: Answers
    wins: Int[Tensor, "cell layer head"]
    shown: Heads
    mean: Float[Tensor, "shown query key"]
    std: Float[Tensor, "shown query key"]
    points: Float[Tensor, "layer 2 output prompt axis"]
    share: Float[Tensor, "layer 2 output axis"]
    spelled: Bool[Tensor, "prompt output"]
    ablated: tuple[Ablated, ...]
    record: dict[str, Any]

    def without(self, ablated: Ablated) -> Answers:
        """The answers of an ablated model."""
        return Answers(self.answers.pairs, ablated.replies, self.answers.template)

    @property
    def counts(self) -> Int[Tensor, "layer head"]:
        """How often each head won a cell."""
        return self.wins.sum(0)

    @property
    def n_staircase(self) -> int:
        """How many heads win at least one cell (Tab. 2)."""
        return int((self.counts > 0).sum())

    @property
    def marks(self) -> list[str]:
        """Axis labels of the maps of the attention."""
        return marks(prompts.DIGITS, SHOWN)

    @property
    def provenance(self) -> str:
        """One sentence on where it comes from, for the page that shows it."""
        layers, n_heads = self.counts.shape
        return (
            f"The model `{self.title}`: {layers} layers of {n_heads} heads, {self.record['dtype']},"
            f" {len(self.answers.replies):,} prompts."
        )

    def accuracies(self, *, random: bool) -> list[float]:
        """Accuracy without each of the random pairs, or without each of the others (Tab. 2)."""
        return [self.without(a).accuracy for a in self.ablated if (a.kind == "random") == random]

    @property
    def chosen(self) -> list[Ablated]:
        """Heads that were taken out for a reason, the costliest first (Tab. 2's addition heads)."""
        return sorted((a for a in self.ablated if a.kind != "random"), key=lambda a: self.without(a).accuracy)

    def lines(self) -> list[str]:
        """What came out, as text."""
        wrong = int((~self.answers.right).sum())
        return [
            f"{self.title}: accuracy {self.answers.accuracy:.3f} on {len(self.answers.replies)} prompts;"
            f" {int(self.answers.carrying.sum())} of {wrong} mistakes are carrying mistakes.",
            f"{self.n_staircase} heads win a cell, most often {heads.name(self.shown)}.",
            *(f"Without {heads.name(a.heads)} ({a.kind}): {self.without(a).accuracy:.3f}." for a in self.ablated),
        ]

    def save(self, path: Path) -> None:
        """Write it, whole or not at all."""
        names = ("wins", "mean", "std", "points", "share", "spelled")
        tensors = {name: getattr(self, name).contiguous() for name in names} | {"pairs": self.answers.pairs}
        tensors |= {name: tensors[name].half() for name in ("points", "share")}
        text = {
            "format": FORMAT, "title": self.title, "template": self.answers.template.name,
            "replies": self.answers.replies, "shown": self.shown, "ablated": [asdict(a) for a in self.ablated],
            "record": self.record,
        }  # fmt: skip
        with replacing(path) as temporary:
            save_file(tensors, temporary, {"carry": json.dumps(text)})


def read(path: Path) -> Survey:
    """A survey from its file.

    Raises:
        BadInput: it is missing, damaged, or of another format.
    """
    if not path.is_file():
        raise BadInput(f"{path} does not exist: expected what `carry llm MODEL --out {path.parent}` writes.")
    try:
        with safe_open(path, "pt") as file:
            text = json.loads(file.metadata()["carry"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
        if text["format"] != FORMAT:
            raise BadInput(f"{path} has format {text['format']!r}, expected {FORMAT!r}: run `carry llm` again.")
        answers = Answers(tensors.pop("pairs"), tuple(text["replies"]), prompts.template(text["template"]))
        floats = {name: tensors.pop(name).float() for name in ("points", "share")}
        ablated = tuple(Ablated(_heads(a["heads"]), a["kind"], tuple(a["replies"])) for a in text["ablated"])
        shown = _heads(text["shown"])
        return Survey(text["title"], answers, shown=shown, ablated=ablated, record=text["record"], **tensors, **floats)
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{path} is damaged ({error}): delete it and run `carry llm` again.") from error


def _heads(found: Sequence[Sequence[int]]) -> Heads:
    return tuple((int(layer), int(head)) for layer, head in found)


def label(pairs: Int[Tensor, "prompt 2"], output: int) -> tuple[Int[Tensor, " prompt"], Bool[Tensor, " prompt"]]:
    """Digit number `output` of each answer, from the left, and whether a one arrives there; -1 beyond its end."""
    total = pairs.sum(1)
    column = (total < prompts.HIGH).long() + output  # among five digits, of which short answers lack the first
    inside = column < WIDTH
    chosen = column.clamp(max=WIDTH - 1).unsqueeze(1)
    digit, arrives = digits(total, WIDTH).gather(1, chosen).squeeze(1), receives(pairs).gather(1, chosen).squeeze(1)
    return torch.where(inside, digit, -1), arrives & inside
