"""Surveys a language model: asks, watches, ablates, batch by batch; all that Tab. 2 and Fig. 6 need is one small file.

A batch is written to disk as soon as it is done, and a survey that was stopped goes on from there: 2.7 GB in all for 7B
weights in 16 bits and 1000 prompts, since residual streams become coordinates on a few axes only when all are there.
They are never in memory together. What is on disk serves later surveys of the same model that ablate other heads.
"""

import hashlib
import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from carry_core.errors import BadInput
from carry_core.files import commit, replacing
from carry_core.findings.geometry import AXES, principal_axes
from carry_core.llm import prompts, staircases
from carry_core.llm.model import (
    OUTPUTS,
    Heads,
    Observer,
    Source,
    ablated,
    format_heads,
    frequent_pairs,
    library,
    most_frequent,
    random_pairs,
)
from carry_core.llm.prompts import Answers, Template

FORMAT = "1"
FILE = "survey.safetensors"
FIELDS = ("wins", "mean", "std", "points", "share", "spelled")  # of a survey, as tensors
STREAM = "stream"  # a batch's residual streams, which stay on disk
Batch = tuple[dict[str, Tensor], list[str]]  # tensors, and one reply for each prompt


@dataclass(frozen=True)
class Ablated:
    """Replies of the model with some heads ablated; `kind` is `asked`, `frequent` or `random`."""

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
        frequent_heads: the most frequent winners, whose attention is kept.
        mean: their attention between the marked tokens, averaged over prompts.
        std: its standard deviation, with n - 1.
        points: coordinates of the residual stream on its leading axes, after attention and MLP of each layer, where
            each token of the answer is predicted.
        share: the axes' shares of the variance.
        spelled: whether that token is the right digit, and all before it are.
        ablated: replies with heads ablated.
        record: how it was made.
    """

    title: str
    answers: Answers
    wins: Int[Tensor, "cell layer head"]
    frequent_heads: Heads
    mean: Float[Tensor, "shown query key"]
    std: Float[Tensor, "shown query key"]
    points: Float[Tensor, "layer 2 output prompt axis"]
    share: Float[Tensor, "layer 2 output axis"]
    spelled: Bool[Tensor, "prompt output"]
    ablated: tuple[Ablated, ...]
    record: dict[str, Any]

    def ablated_answers(self, ablated: Ablated) -> Answers:
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
        return prompts.marks(prompts.DIGITS, staircases.N_MAPPED)

    @property
    def provenance(self) -> str:
        """One sentence on where it comes from, for the page that shows it."""
        layers, n_heads = self.counts.shape
        return (
            f"The model “{self.title}”: {layers} layers of {n_heads} heads, {self.record['dtype']},"
            f" {len(self.answers.replies):,} prompts."
        )

    def accuracies(self, *, random: bool) -> list[float]:
        """Accuracy with each of the random pairs ablated, or each of the others (Tab. 2)."""
        return [self.ablated_answers(a).accuracy for a in self.ablated if (a.kind == "random") == random]

    @property
    def targeted(self) -> list[Ablated]:
        """What was not ablated at random, the costliest first (Tab. 2's addition heads)."""
        targeted = (a for a in self.ablated if a.kind != "random")
        return sorted(targeted, key=lambda a: self.ablated_answers(a).accuracy)

    def lines(self) -> list[str]:
        """What came out, as text."""
        wrong, n = int((~self.answers.right).sum()), len(self.answers.replies)
        return [
            f"{self.title}: accuracy {self.answers.accuracy:.3f} on {n} prompts;"
            f" {int(self.answers.carrying.sum())} of {wrong} mistakes are carrying mistakes.",
            f"{self.n_staircase} heads win a cell, most often {format_heads(self.frequent_heads)}.",
            *(
                f"Without {format_heads(a.heads)} ({a.kind}): {self.ablated_answers(a).accuracy:.3f}."
                for a in self.ablated
            ),
        ]

    def save(self, path: Path) -> None:
        """Write it, whole or not at all."""
        tensors = {name: getattr(self, name).contiguous() for name in FIELDS} | {"pairs": self.answers.pairs}
        tensors |= {name: tensors[name].half() for name in ("points", "share")}
        text: dict[str, Any] = {"format": FORMAT, "title": self.title, "template": self.answers.template.name}
        text |= {"replies": self.answers.replies, "ablated": [asdict(a) for a in self.ablated]}
        text |= {"shown": self.frequent_heads, "record": self.record}
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
            tensors = {key: file.get_tensor(key) for key in (*FIELDS, "pairs")}
        if text["format"] != FORMAT:
            raise ValueError(f"format {text['format']!r}, expected {FORMAT!r}")
        tensors |= {name: tensors[name].float() for name in ("points", "share")}
        answers = Answers(tensors.pop("pairs"), tuple(text["replies"]), prompts.TEMPLATES[text["template"]])
        ablated = tuple(Ablated(_heads(a["heads"]), a["kind"], tuple(a["replies"])) for a in text["ablated"])
        return Survey(
            text["title"],
            answers,
            frequent_heads=_heads(text["shown"]),
            ablated=ablated,
            record=text["record"],
            **tensors,
        )
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{path} is damaged ({error}): delete it and run `carry llm` again.") from error


def _heads(lists: list[list[int]]) -> Heads:
    return tuple((int(layer), int(head)) for layer, head in lists)


# ---------------------------------------------------------------- how one is made


@dataclass(frozen=True)
class Plan:
    """What to measure.

    Attributes:
        count: prompts.
        seed: of the prompts and of the random pairs.
        batch: prompts at a time.
        asked: sets of heads to ablate.
        pairs: how many pairs of the most frequent winners to ablate besides; None for three if nothing is asked.
    """

    template: Template = prompts.TEMPLATES["bare"]
    count: int = 1000
    seed: int = 42
    batch: int = 25
    asked: tuple[Heads, ...] = ()
    pairs: int | None = None

    @property
    def n_frequent(self) -> int:
        """How many pairs of frequent winners are ablated."""
        return self.pairs if self.pairs is not None else 0 if self.asked else 3


class Surveyor:
    """Measures one model by one plan.

    Args:
        source: the model.
        plan: what to measure.
        parts: folder for what is done so far.
        report: called after each batch with what was done and the share of all that is done.
    """

    def __init__(
        self, source: Source, plan: Plan, parts: Path, report: Callable[[str, float], None] = lambda what, share: None
    ) -> None:
        self.source, self.plan, self.report = source, plan, report
        self.pairs = prompts.draw(plan.count, plan.seed)
        self.batches: list[Int[Tensor, "batch 2"]] = list(self.pairs.split(plan.batch))
        self.parts = parts / f"{source.title}-{fingerprint(source, plan)}"
        self.model: Any = None
        self.total = (1 + 2 * (len(plan.asked) + plan.n_frequent)) * len(self.batches)
        self.done = 0

    def run(self) -> Survey:
        """Measure what is not on disk yet, and put everything together."""
        intact = self._measure("intact", self._observe)
        wins = torch.stack([tensors["wins"] for tensors, _ in intact]).sum(0)
        frequent = most_frequent(wins.sum(0))
        targets = [(heads, "asked") for heads in self.plan.asked]
        targets += [(pair, "frequent") for pair in frequent_pairs(wins.sum(0), self.plan.n_frequent)]
        others = {*frequent}.union(*self.plan.asked)
        random = random_pairs(self.source.size, [heads for heads, _ in targets], others, self.plan.seed)
        targets += [(pair, "random") for pair in random]
        ablated = tuple(Ablated(heads, kind, self._ablate(heads)) for heads, kind in targets)
        mean, std = self._maps([tensors for tensors, _ in intact], frequent)
        spelled = torch.cat([tensors["spelled"] for tensors, _ in intact])
        points, share = self._axes(spelled)
        answers = Answers(self.pairs, tuple(reply for _, replies in intact for reply in replies), self.plan.template)
        return Survey(
            self.source.title, answers, wins, frequent, mean, std, points, share, spelled, ablated, self._record()
        )

    def _record(self) -> dict[str, Any]:
        versions = {"torch": torch.__version__, "transformers": library().__version__, "commit": commit()}
        made = {"model": self.source.name, "dtype": self.source.dtype, "device": self.source.device}
        return made | {"seed": self.plan.seed, "batch": self.plan.batch} | versions

    def _ablate(self, heads: Heads) -> tuple[str, ...]:
        """All replies with these heads ablated."""

        def ask(batch: Tensor) -> Batch:
            with ablated(self._loaded(), heads):
                return {}, self._generate(batch)[1]

        name = "without-" + format_heads(heads).replace(":", "_").replace(",", "-")
        return tuple(reply for _, replies in self._measure(name, ask) for reply in replies)

    def _loaded(self) -> Any:
        if self.model is None:
            self.model = self.source.load()
        return self.model

    def _path(self, name: str, number: int) -> Path:
        return self.parts / f"{name}-{number:04d}.safetensors"

    def _measure(self, name: str, measure: Callable[[Int[Tensor, "batch 2"]], Batch]) -> list[Batch]:
        """Every batch, from disk if it is there; its residual stream stays on disk."""
        measured = []
        for number, pairs in enumerate(self.batches):
            path = self._path(name, number)
            batch = _read_batch(path)
            if batch is None:
                tensors, replies = measure(pairs)
                with replacing(path) as temporary:
                    save_file({"done": torch.ones(1), **tensors}, temporary, {"replies": json.dumps(replies)})
                tensors.pop(STREAM, None)
                batch = tensors, replies
            measured.append(batch)
            self.done += 1
            self.report(path.stem, min(1.0, self.done / self.total))
        return measured

    def _inputs(self, pairs: Int[Tensor, "batch 2"]) -> tuple[list[str], Any]:
        texts = [self.plan.template.prompt(a, b) for a, b in pairs.tolist()]
        return texts, self.source.tokenizer(texts, return_tensors="pt", padding=True, return_offsets_mapping=True)

    def _generate(self, pairs: Int[Tensor, "batch 2"]) -> tuple[Int[Tensor, "batch token"], list[str]]:
        """The tokens that the model adds to each prompt, and their text, decoded greedily."""
        model, tokenizer = self._loaded(), self.source.tokenizer
        _, inputs = self._inputs(pairs)
        ids, mask = inputs["input_ids"].to(model.device), inputs["attention_mask"].to(model.device)
        greedy = library().GenerationConfig(
            max_new_tokens=self.plan.template.tokens,
            **{"do_sample": False, "num_beams": 1, "use_cache": True, "temperature": 1.0, "top_p": 1.0, "top_k": 50},
            eos_token_id=model.generation_config.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
        with torch.inference_mode():
            new = model.generate(ids, attention_mask=mask, generation_config=greedy)[:, ids.shape[1] :].cpu()
        return new, tokenizer.batch_decode(new, skip_special_tokens=True)

    def _observe(self, pairs: Int[Tensor, "batch 2"]) -> Batch:
        """One batch of the intact model: wins, sums over prompts of attention, residual streams, replies."""
        model, n_tokens = self._loaded(), self.plan.template.tokens
        texts, inputs = self._inputs(pairs)
        length, pads = inputs["input_ids"].shape[1], (inputs["attention_mask"] == 0).sum(1)
        cells = []
        for text, offsets, pad, (a, b) in zip(
            texts, inputs["offset_mapping"].tolist(), pads.tolist(), pairs.tolist(), strict=True
        ):
            places = prompts.locate(text, offsets[pad:], a, b)
            cells.append(staircases.cells(places, n_tokens) + staircases.map_cells(places))
        rows, columns = staircases.padded(cells, pads)
        observer = Observer(model, rows, columns, length)
        with observer.watching():
            new, replies = self._generate(pairs)
        exists = staircases.reached(rows, length, _produced(new, model.generation_config.eos_token_id))
        n = staircases.n_cells(n_tokens)
        maps, mask = observer.attention[..., n:].double(), exists[:, None, None, n:]
        tensors = {
            "wins": staircases.count_wins(observer.attention[..., :n], exists[:, :n], self.source.size),
            "n": mask.sum(0).flatten(),
            "sum": (maps * mask).sum(0),
            "squares": (maps.square() * mask).sum(0),
            "spelled": self._spelled(pairs, new),
            STREAM: observer.stream,
        }
        return tensors, replies

    def _spelled(self, pairs: Int[Tensor, "batch 2"], new: Int[Tensor, "batch token"]) -> Bool[Tensor, "batch output"]:
        """Where the model writes the right digit, one token for each digit so far."""
        right = torch.zeros(len(pairs), OUTPUTS, dtype=torch.bool)
        for i, (total, tokens) in enumerate(zip(pairs.sum(1).tolist(), new.tolist(), strict=True)):
            for j, digit in enumerate(str(total)[: min(OUTPUTS, len(tokens))]):
                if self.source.tokenizer.decode(tokens[j]).strip() != digit:
                    break
                right[i, j] = True
        return right

    def _maps(self, intact: list[dict[str, Tensor]], heads: Heads) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation over prompts of these heads' attention, `[head, query, key]` each."""
        n, total, squares = (torch.stack([batch[key] for batch in intact]).sum(0) for key in ("n", "sum", "squares"))
        mean, square = (torch.stack([x[layer, head] for layer, head in heads]) for x in (total / n, squares / n))
        std = ((square - mean.square()).clamp(min=0) * n / (n - 1)).sqrt()
        mean, std = (staircases.grid(x.nan_to_num(0)).float() for x in (mean, std))
        return mean, std

    def _axes(self, spelled: Bool[Tensor, "prompt output"]) -> tuple[Tensor, Tensor]:
        """Each stream on its leading axes, over the prompts whose digit there is right, else NaN; the axes' shares."""
        size = self.source.size
        points = torch.full((size.layers, 2, OUTPUTS, len(self.pairs), AXES), float("nan"))
        share = torch.full((size.layers, 2, OUTPUTS, AXES), float("nan"))
        with ExitStack() as stack:
            paths = [self._path("intact", number) for number in range(len(self.batches))]
            streams = [stack.enter_context(safe_open(path, "pt")).get_slice(STREAM) for path in paths]
            for output, layer, after in product(range(OUTPUTS), range(size.layers), range(2)):
                right = spelled[:, output]
                if int(right.sum()) > AXES:
                    digit, carry = prompts.digit_and_carry(self.pairs, output)
                    x = torch.cat([stream[output, layer, after] for stream in streams])[right].float()
                    points[layer, after, output, right], shares = principal_axes(x, [carry[right], digit[right]])
                    share[layer, after, output] = torch.tensor(shares)
        return points, share


def _produced(new: Int[Tensor, "batch token"], end: int | list[int] | None) -> Int[Tensor, " batch"]:
    """How many tokens each example generated, the one that ended it included."""
    ends = torch.isin(new, torch.tensor(end if isinstance(end, list) else [-1 if end is None else end]))
    return torch.where(ends.any(1), ends.int().argmax(1) + 1, new.shape[1])


def fingerprint(source: Source, plan: Plan) -> str:
    """What a half-finished survey may be gone on with by: the model's files and what is asked of it."""
    folder = Path(source.name)
    files = sorted(folder.glob("*.safetensors")) + sorted(folder.glob("*.bin")) if folder.is_dir() else []
    stamps = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    revision = getattr(source.config, "_commit_hash", None)
    asked = [revision, plan.template.text, plan.count, plan.seed, plan.batch, source.dtype, FORMAT]
    text = json.dumps([source.name, source.config.to_json_string(), stamps, asked])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _read_batch(path: Path) -> Batch | None:
    """A batch that was written before; None if it was not, or is damaged and has to be measured again."""
    try:
        with safe_open(path, "pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys() if key != STREAM}  # noqa: SIM118 (not a dict)
            return tensors, json.loads(file.metadata()["replies"])
    except (SafetensorError, OSError, KeyError, TypeError, ValueError):
        return None
