"""Surveys a language model: asks, watches, ablates, batch by batch; all that Tab. 2 and Fig. 6 need is one small file.

A batch is written to disk as soon as it is done, and a survey that was stopped goes on from there: 2.7 GB in all for 7B
weights in 16 bits and 1000 prompts, since residual streams become coordinates on a few axes only when all are there.
They are never in memory together. What is on disk serves later surveys of the same model that ablate other heads.
"""

import hashlib
import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from carry_core.errors import BadInput
from carry_core.files import replacing
from carry_core.findings.geometry import AXES, principal_axes
from carry_core.llm import prompts, staircases
from carry_core.llm.model import (
    OUTPUTS,
    Heads,
    Source,
    ablated,
    cached_streams,
    format_heads,
    frequent_pairs,
    library,
    most_frequent,
    random_pairs,
)
from carry_core.llm.prompts import Answers, Template
from carry_core.training.trainer import commit

FILE = "survey.safetensors"
FIELDS = ("wins", "mean", "std", "points", "share", "spelled")  # of a survey, as tensors
STREAM = "stream"  # a batch's residual streams, which stay on disk
Batch = tuple[dict[str, Tensor], list[str]]  # tensors, and one reply for each prompt


class Ablated(NamedTuple):
    """Answers of the model with some heads ablated; `kind` is `asked`, `frequent` or `random`."""

    heads: Heads
    kind: str
    answers: Answers


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
        ablated: answers with heads ablated.
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
        """Axis labels of the maps of the attention: `*` for a digit, as in the paper."""
        return ["⊢", *"*" * prompts.DIGITS, "+", *"*" * prompts.DIGITS, "=", *"•" * staircases.N_MAPPED]

    @property
    def provenance(self) -> str:
        """One sentence on where it comes from, for the page that shows it."""
        layers, n_heads = self.counts.shape
        return (
            f"The model “{self.title}”: {layers} layers of {n_heads} heads, {self.record['dtype']},"
            f" {len(self.answers.replies):,} prompts."
        )

    @property
    def targeted(self) -> list[Ablated]:
        """What was not ablated at random, the costliest first (Tab. 2's addition heads)."""
        return sorted((a for a in self.ablated if a.kind != "random"), key=lambda a: a.answers.accuracy)

    def lines(self) -> list[str]:
        """What came out, as text."""
        wrong, n = int((~self.answers.right).sum()), len(self.answers.replies)
        return [
            f"{self.title}: accuracy {self.answers.accuracy:.3f} on {n} prompts;"
            f" {int(self.answers.carrying.sum())} of {wrong} mistakes are carrying mistakes.",
            f"{self.n_staircase} heads win a cell, most often {format_heads(self.frequent_heads)}.",
            *(f"Without {format_heads(a.heads)} ({a.kind}): {a.answers.accuracy:.3f}." for a in self.ablated),
        ]

    def save(self, path: Path) -> None:
        """Write it, whole or not at all."""
        tensors = {name: getattr(self, name).contiguous() for name in FIELDS} | {"pairs": self.answers.pairs}
        tensors |= {name: tensors[name].half() for name in ("points", "share")}
        text = {
            "title": self.title,
            "template": self.answers.template.name,
            "replies": self.answers.replies,
            "ablated": [{"heads": a.heads, "kind": a.kind, "replies": a.answers.replies} for a in self.ablated],
            "shown": self.frequent_heads,
            "record": self.record,
        }
        with replacing(path) as temporary:
            save_file(tensors, temporary, {"carry": json.dumps(text)})


def read(path: Path) -> Survey:
    """A survey from its file.

    Raises:
        BadInput: it is missing or damaged.
    """
    if not path.is_file():
        raise BadInput(f"{path} does not exist: expected what `carry llm MODEL --out {path.parent}` writes.")
    try:
        with safe_open(path, "pt") as file:
            text = json.loads(file.metadata()["carry"])
            tensors = {key: file.get_tensor(key) for key in FIELDS}
            pairs, template = file.get_tensor("pairs"), prompts.TEMPLATES[text["template"]]
        tensors |= {name: tensors[name].float() for name in ("points", "share")}
        ablated = (
            Ablated(_heads(a["heads"]), a["kind"], Answers(pairs, tuple(a["replies"]), template))
            for a in text["ablated"]
        )
        return Survey(
            text["title"],
            Answers(pairs, tuple(text["replies"]), template),
            frequent_heads=_heads(text["shown"]),
            ablated=tuple(ablated),
            record=text["record"],
            **tensors,
        )
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{path} is damaged ({error}): delete it and run `carry llm` again.") from error


def _heads(lists: list[list[int]]) -> Heads:
    return tuple((layer, head) for layer, head in lists)


# ---------------------------------------------------------------- how one is made


@dataclass
class Surveyor:
    """Measures one model.

    Attributes:
        source: the model.
        parts: folder for what is done so far, of all surveys.
        template: how sums are put to it.
        count: prompts.
        seed: of the prompts and of the random pairs.
        batch: prompts at a time.
        asked: sets of heads to ablate.
        n_pairs: how many pairs of the most frequent winners to ablate besides; None for three if nothing is asked.
        report: called after each batch with what was done and the share of all that is done.
    """

    source: Source
    parts: Path
    template: Template = prompts.TEMPLATES["bare"]
    count: int = 1000
    seed: int = 42
    batch: int = 25
    asked: tuple[Heads, ...] = ()
    n_pairs: int | None = None
    report: Callable[[str, float], None] = lambda what, share: None

    def __post_init__(self) -> None:
        self.pairs = prompts.draw(self.count, self.seed)
        self.n_frequent = self.n_pairs if self.n_pairs is not None else 0 if self.asked else 3
        self.folder = self.parts / f"{self.source.title}-{self._fingerprint()}"
        self.done = 0

    def _fingerprint(self) -> str:
        """What a half-finished survey may be gone on with by: the model's files and what is asked of it."""
        config, folder = self.source.config, Path(self.source.name)
        files = [*sorted(folder.glob("*.safetensors")), *sorted(folder.glob("*.bin"))]  # none of a model on the hub
        stamps = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files]
        asked = [self.template.text, self.count, self.seed, self.batch, self.source.dtype]
        text = json.dumps([str(folder), config.to_json_string(), getattr(config, "_commit_hash", None), stamps, asked])
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def run(self) -> Survey:
        """Measure what is not on disk yet, and put everything together."""
        intact, replies = self._measure("intact", self._observe)
        wins = torch.stack([tensors["wins"] for tensors in intact]).sum(0)
        frequent = most_frequent(wins.sum(0))
        targets = [(heads, "asked") for heads in self.asked]
        targets += [(pair, "frequent") for pair in frequent_pairs(wins.sum(0), self.n_frequent)]
        others = {*frequent}.union(*self.asked)
        random = random_pairs(self.source.size, [heads for heads, _ in targets], others, self.seed)
        targets += [(pair, "random") for pair in random]
        ablated = tuple(Ablated(heads, kind, self._ablate(heads)) for heads, kind in targets)
        mean, std = _maps(intact, frequent)
        spelled = torch.cat([tensors["spelled"] for tensors in intact])
        points, share = self._axes(spelled)
        answers, title = Answers(self.pairs, replies, self.template), self.source.title
        record: dict[str, Any] = {"model": self.source.name, "dtype": self.source.dtype, "device": self.source.device}
        record |= {"seed": self.seed, "batch": self.batch, "commit": commit()}
        record |= {"torch": torch.__version__, "transformers": library().__version__}
        return Survey(title, answers, wins, frequent, mean, std, points, share, spelled, ablated, record)

    @cached_property
    def model(self) -> Any:
        """The weights, read when they are first needed."""
        return self.source.load()

    def _ablate(self, heads: Heads) -> Answers:
        """The answers with these heads ablated."""

        def ask(pairs: Int[Tensor, "batch 2"]) -> Batch:
            with ablated(self.model, heads):
                new, _ = self._generate(self._inputs(pairs))
            return {}, self._text(new)

        _, replies = self._measure("without-" + format_heads(heads).replace(":", "_").replace(",", "-"), ask)
        return Answers(self.pairs, replies, self.template)

    def _path(self, name: str, number: int) -> Path:
        return self.folder / f"{name}-{number:04d}.safetensors"

    def _measure(
        self, name: str, measure: Callable[[Int[Tensor, "batch 2"]], Batch]
    ) -> tuple[list[dict[str, Tensor]], tuple[str, ...]]:
        """Every batch's tensors but the residual stream, and all replies; from disk what is there."""
        measured: list[Batch] = []
        batches = self.pairs.split(self.batch)
        for number, pairs in enumerate(batches):
            path = self._path(name, number)
            if (batch := _read_batch(path)) is None:
                tensors, replies = batch = measure(pairs)
                with replacing(path) as temporary:
                    save_file({"done": torch.ones(1), **tensors}, temporary, {"replies": json.dumps(replies)})
                tensors.pop(STREAM, None)
            measured.append(batch)
            self.done += 1
            total = (1 + 2 * (len(self.asked) + self.n_frequent)) * len(batches)
            self.report(path.stem, min(1.0, self.done / total))
        return [tensors for tensors, _ in measured], tuple(reply for _, replies in measured for reply in replies)

    def _inputs(self, pairs: Int[Tensor, "batch 2"]) -> Any:
        """The prompts' tokens, padded on the left."""
        texts = [self.template.prompt(a, b) for a, b in pairs.tolist()]
        return self.source.tokenizer(texts, return_tensors="pt", padding=True, return_offsets_mapping=True)

    def _text(self, new: Int[Tensor, "batch token"]) -> list[str]:
        return list(self.source.tokenizer.batch_decode(new, skip_special_tokens=True))

    def _generate(self, inputs: Any, attend: bool = False) -> tuple[Int[Tensor, "batch token"], Any]:
        """The tokens that the model adds to each prompt, decoded greedily, and every attention pattern if asked for."""
        ids, mask = (inputs[key].to(self.model.device) for key in ("input_ids", "attention_mask"))
        greedy = library().GenerationConfig(
            max_new_tokens=self.template.tokens,
            do_sample=False,
            num_beams=1,
            use_cache=True,
            eos_token_id=self.model.generation_config.eos_token_id,
            pad_token_id=self.source.tokenizer.pad_token_id,
            return_dict_in_generate=True,
            output_attentions=attend,
        )
        with torch.inference_mode():
            output = self.model.generate(ids, attention_mask=mask, generation_config=greedy)
        return output.sequences[:, ids.shape[1] :].cpu(), output.attentions

    def _observe(self, pairs: Int[Tensor, "batch 2"]) -> Batch:
        """One batch of the intact model: wins, sums over prompts of attention, residual streams, replies."""
        inputs = self._inputs(pairs)
        pads, cells = (inputs["attention_mask"] == 0).sum(1), []
        for (a, b), offsets, pad in zip(pairs.tolist(), inputs["offset_mapping"].tolist(), pads.tolist(), strict=True):
            places = prompts.locate(self.template.prompt(a, b), offsets[pad:], a, b)
            cells.append(staircases.cells(places, self.template.tokens) + staircases.map_cells(places))
        rows, columns = torch.tensor(cells).permute(2, 0, 1) + pads.unsqueeze(1)
        with cached_streams(self.model) as streams:
            new, patterns = self._generate(inputs, attend=True)
        produced = _produced(new, self.model.generation_config.eos_token_id)
        exists = rows < inputs["input_ids"].shape[1] + produced.unsqueeze(1) - 1  # the last token is never fed back
        attention = staircases.attention_at(patterns, rows, columns)
        n = prompts.DIGITS + self.template.tokens  # of the search; the others are for maps
        maps, mask = attention[..., n:].double(), exists[:, None, None, n:]
        stream = torch.stack(streams).unflatten(0, (-1, self.source.size.layers, 2))
        tensors = {
            "wins": staircases.count_wins(attention[..., :n], exists[:, :n]),
            "n": mask.sum(0).flatten(),
            "sum": (maps * mask).sum(0),
            "squares": (maps.square() * mask).sum(0),
            "spelled": self._spelled(pairs, new),
            STREAM: torch.cat([stream, stream.new_full((OUTPUTS - len(stream), *stream.shape[1:]), float("nan"))]),
        }
        return tensors, self._text(new)

    def _spelled(self, pairs: Int[Tensor, "batch 2"], new: Int[Tensor, "batch token"]) -> Bool[Tensor, "batch output"]:
        """Where the model writes the right digit, one token for each digit so far."""
        decode, new = self.source.tokenizer.decode, new[:, :OUTPUTS]
        right = [
            [decode(token).strip() == digit for token, digit in zip(tokens, str(total).ljust(OUTPUTS), strict=False)]
            for total, tokens in zip(pairs.sum(1).tolist(), new.tolist(), strict=True)
        ]
        return F.pad(torch.tensor(right).int().cumprod(1).bool(), (0, OUTPUTS - new.shape[1]))

    def _axes(self, spelled: Bool[Tensor, "prompt output"]) -> tuple[Tensor, Tensor]:
        """Each stream on its leading axes, over the prompts whose digit there is right, else NaN; the axes' shares."""
        n_layers = self.source.size.layers
        points = torch.full((n_layers, 2, OUTPUTS, len(self.pairs), AXES), float("nan"))
        share = torch.full((n_layers, 2, OUTPUTS, AXES), float("nan"))
        with ExitStack() as stack:
            paths = [self._path("intact", number) for number in range(len(self.pairs.split(self.batch)))]
            streams = [stack.enter_context(safe_open(path, "pt")).get_slice(STREAM) for path in paths]
            for output, layer, after in product(range(OUTPUTS), range(n_layers), range(2)):
                right = spelled[:, output]
                if int(right.sum()) > AXES:
                    digit, carry = prompts.digit_and_carry(self.pairs, output)
                    x = torch.cat([stream[output, layer, after] for stream in streams])[right].float()
                    points[layer, after, output, right], shares = principal_axes(x, [carry[right], digit[right]])
                    share[layer, after, output] = torch.tensor(shares)
        return points, share


def _maps(intact: list[dict[str, Tensor]], heads: Heads) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation over prompts of these heads' attention, `[head, query, key]` each."""
    n, total, squares = (torch.stack([batch[key] for batch in intact]).sum(0) for key in ("n", "sum", "squares"))
    layers, numbers = torch.tensor(heads).unbind(1)
    mean, square = ((x / n)[layers, numbers] for x in (total, squares))
    std = ((square - mean.square()).clamp(min=0) * n / (n - 1)).sqrt()
    mean, std = (staircases.grid(x.nan_to_num(0)).float() for x in (mean, std))
    return mean, std


def _produced(new: Int[Tensor, "batch token"], end: int | list[int] | None) -> Int[Tensor, " batch"]:
    """How many tokens each example generated, the one that ended it included."""
    ends = torch.isin(new, torch.tensor(end if isinstance(end, list) else [-1 if end is None else end]))
    return torch.where(ends.any(1), ends.int().argmax(1) + 1, new.shape[1])


def _read_batch(path: Path) -> Batch | None:
    """A batch that was written before; None if it was not, or is damaged and has to be measured again."""
    try:
        with safe_open(path, "pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys() if key != STREAM}  # noqa: SIM118 (not a dict)
            return tensors, json.loads(file.metadata()["replies"])
    except (SafetensorError, OSError, KeyError, TypeError, ValueError):
        return None
