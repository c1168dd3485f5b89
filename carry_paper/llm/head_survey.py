"""Survey a language model: prompt it, cache activations, ablate heads (Tab. 2, Fig. 6).

A survey is stored in one small file. While it runs, each batch is written to disk as soon as it is
done, and a survey that was stopped resumes from there. The batches take 3 GB for 7B weights in 16
bits and 1000 prompts, since residual streams are reduced to coordinates on a few axes only at the
end. They are never in memory all at once. Later surveys of the same model that ablate other heads
reuse them.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from pydantic import BaseModel, ConfigDict, model_validator
from safetensors.torch import save_file
from torch import Tensor

from carry_core.errors import BadInput
from carry_core.files import open_tensors
from carry_paper.findings import geometry
from carry_paper.llm import prompts, staircases
from carry_paper.llm.model import Heads, Source, ablated, cached_streams, format_heads, library
from carry_paper.llm.prompts import DIGITS, WIDTH, Answers, Template
from carry_paper.schemas import one_of, plain_errors
from carry_train.files import replacing
from carry_train.trainer import commit

FILE = "survey.safetensors"
FIELDS = ("wins", "mean", "std", "points", "share", "spelled")  # of a survey, as tensors
FORMAT = 3  # of the batches on disk
# Correct answers that a model needs for its heads to be ranked by accuracy. A pair of heads that
# costs half of them, as the paper's pairs do, then costs eleven or more in nine of ten surveys. By
# a sign test eleven are significant over all 28 pairs of eight heads, and ten are not.
RIGHT_TO_RANK = 28
MEASURES: dict[str, Callable[[geometry.Plane], float]] = {
    "carry-in, on one of two axes": geometry.plane_accuracy,
    "carry-in, on six axes": geometry.accuracy_on_all_axes,
    "nearest centre is the digit’s": lambda plane: geometry.centroid_accuracy(
        plane.points, plane.digit
    ),
}


class AblatedText(BaseModel):
    """The answers with some heads ablated, in a survey's file."""

    model_config = ConfigDict(extra="forbid")

    heads: list[tuple[int, int]]
    kind: Literal["asked", "frequent", "random"]
    replies: list[str]


class SurveyText(BaseModel):
    """The text in a survey's file, besides its tensors."""

    model_config = ConfigDict(extra="forbid")

    title: str
    template: Annotated[str, one_of(prompts.TEMPLATES)]
    replies: list[str]
    ablated: list[AblatedText]
    record: dict[str, Any]

    @model_validator(mode="after")
    def check_lengths(self) -> "SurveyText":
        """Raise `ValueError` unless each set of ablated heads has a reply to every prompt."""
        if any(len(ablated.replies) != len(self.replies) for ablated in self.ablated):
            raise ValueError("its replies are to different prompts")
        return self


class Ablated(NamedTuple):
    """Answers of the model with some heads ablated; `kind` is `asked`, `frequent` or `random`."""

    heads: Heads
    kind: str
    answers: Answers


@dataclass(frozen=True)
class Observations:
    """Answers and attention of a language model, recorded by the author or by us."""

    title: str  # the model's name
    answers: Answers  # of the intact model
    # how often each head won each cell of the staircase search
    wins: Int[Tensor, "cell layer head"]
    # attention of the most frequent winners, most frequent first
    mean: Float[Tensor, "shown query key"]
    std: Float[Tensor, "shown query key"]  # over prompts, with n - 1

    @property
    def counts(self) -> Int[Tensor, "layer head"]:
        """Number of cells that each head won."""
        return self.wins.sum(0)

    @property
    def n_staircase(self) -> int:
        """Number of heads that win at least one cell (Tab. 2)."""
        return int((self.counts > 0).sum())

    @property
    def frequent_heads(self) -> Heads:
        """The heads whose attention is stored."""
        return staircases.most_frequent(self.counts, len(self.mean))


@dataclass(frozen=True)
class Survey(Observations):
    """The results of a survey; its attention is that between the marked tokens."""

    # the residual stream on its leading axes where each token of the answer is predicted, after
    # attention and after MLP
    points: Float[Tensor, "layer 2 output prompt axis"]
    share: Float[Tensor, "layer 2 output axis"]  # of the variance
    # whether that token is the right digit, and all before it are
    spelled: Bool[Tensor, "prompt output"]
    ablated: tuple[Ablated, ...]
    record: dict[str, Any]  # how it was made
    marks = staircases.MARKS

    @property
    def provenance(self) -> str:
        """A sentence on where the survey comes from, for the page that shows it."""
        layers, n_heads = self.counts.shape
        size = f"{layers} layers of {n_heads} heads, {self.record['dtype']}"
        return f"The model “{self.title}”: {size}, {len(self.answers.replies):,} prompts."

    @property
    def targeted(self) -> list[Ablated]:
        """Ablations that are not random, the costliest first (Tab. 2's addition heads)."""
        return sorted(
            (a for a in self.ablated if a.kind != "random"), key=lambda a: a.answers.accuracy
        )

    def planes(self, layer: int) -> list[geometry.Plane]:
        """Return a layer's stream at each digit, after attention and after MLP: columns of Fig. 6.

        A prompt counts if the digit is correct and is a token of its own. A digit needs 50 such
        prompts. The two sides are the sums with and without a carry-in.
        """
        planes, pairs = [], self.answers.pairs
        for output in range(DIGITS):
            right = self.spelled[:, output]
            if right.sum() < 50:  # prompts whose digit is right: too few to say something about it
                continue
            digit, carry = prompts.digit_and_carry(pairs, output)
            for after, name in enumerate(("attention", "MLP")):
                points = self.points[layer, after, output, right]
                share = tuple(self.share[layer, after, output].tolist())
                planes.append(
                    geometry.Plane(layer, name, output, points, share, digit[right], carry[right])
                )
        return planes

    def separations(
        self, measures: dict[str, Callable[[geometry.Plane], float]] = MEASURES
    ) -> pd.DataFrame:
        """Measure how the stream is ordered, by `output` (the digit, counted from 0) and layer."""
        planes = [plane for layer in range(len(self.counts)) for plane in self.planes(layer)]
        rows = [
            (p.position, p.layer, p.after, *(measure(p) for measure in measures.values()))
            for p in planes
        ]
        return pd.DataFrame(rows, columns=["output", "layer", "after", *measures])

    def lines(self) -> list[str]:
        """Return the results as lines of text."""
        wrong, n = int((~self.answers.right).sum()), len(self.answers.replies)
        return [
            f"{self.title}: accuracy {self.answers.accuracy:.3f} on {n} prompts;"
            f" {int(self.answers.carrying.sum())} of {wrong} mistakes are carrying mistakes.",
            f"{self.n_staircase} heads win a cell, most often {format_heads(self.frequent_heads)}.",
            *(
                f"Without {format_heads(a.heads)} ({a.kind}): {a.answers.accuracy:.3f}."
                for a in self.ablated
            ),
        ]

    def save(self, path: Path) -> None:
        tensors = {name: getattr(self, name).contiguous() for name in FIELDS} | {
            "pairs": self.answers.pairs
        }
        tensors |= {name: tensors[name].half() for name in ("points", "share")}
        ablated = [
            {"heads": a.heads, "kind": a.kind, "replies": a.answers.replies} for a in self.ablated
        ]
        text = {
            "title": self.title,
            "template": self.answers.template.name,
            "replies": self.answers.replies,
            "ablated": ablated,
            "record": self.record,
        }
        with replacing(path) as temporary:
            save_file(tensors, temporary, {"carry": json.dumps(text)})


def too_few_right(answers: Answers) -> str:
    """Return a line if a model gets too few sums right to rank its heads by accuracy; else ""."""
    right = int(answers.right.sum())
    if right >= RIGHT_TO_RANK:
        return ""
    return (
        f"Only {right} of {len(answers.replies)} sums are correct, too few to rank heads by"
        f" accuracy: {RIGHT_TO_RANK} are needed to tell heads that cost half of them from heads"
        " that cost none."
    )


def read(path: Path) -> Survey:
    """Read a survey from its file; raise `BadInput` if it is missing or damaged."""
    with open_tensors(path, "delete it and run `carry llm` again") as file, plain_errors():
        text = SurveyText.model_validate_json((file.metadata() or {})["carry"])
        tensors = {key: file.get_tensor(key) for key in FIELDS}
        tensors |= {name: tensors[name].float() for name in ("points", "share")}
        pairs, template = file.get_tensor("pairs"), prompts.TEMPLATES[text.template]
        check_shapes(tensors | {"pairs": pairs}, len(text.replies))
    ablated = tuple(
        Ablated(tuple(a.heads), a.kind, Answers(pairs, tuple(a.replies), template))
        for a in text.ablated
    )
    answers = Answers(pairs, tuple(text.replies), template)
    return Survey(text.title, answers, ablated=ablated, record=text.record, **tensors)


def check_replaces(path: Path, count: int) -> None:
    """Raise `BadInput` if the file is a survey of more prompts than `count`."""
    if os.path.lexists(path):
        stored = len(read(path).answers.replies)
        if stored > count:
            raise BadInput(
                f"{path} is a survey of {stored:,} prompts: ask for as many, or pass another --out."
            )


def check_shapes(tensors: Mapping[str, Tensor], n_prompts: int) -> None:
    """Raise `ValueError` unless a survey's tensors fit one model and `n_prompts` prompts."""
    layers = tensors["wins"].shape[1:2]
    axes = tensors["points"].shape[-1:]
    expected = {
        "pairs": (n_prompts, 2),
        "spelled": (n_prompts, WIDTH),
        "points": (*layers, 2, WIDTH, n_prompts, *axes),
        "share": (*layers, 2, WIDTH, *axes),
        "std": tensors["mean"].shape,
    }
    for name, shape in expected.items():
        if tensors[name].shape != torch.Size(shape):
            raise ValueError(f"{name} is {[*tensors[name].shape]}, expected {[*shape]}")


@dataclass
class Surveyor:
    """Measures one model."""

    source: Source
    parts: Path  # folder for what is done so far, of all surveys
    template: Template = prompts.TEMPLATES["bare"]
    count: int = 1000  # prompts
    seed: int = 42  # of the prompts and of the random pairs
    batch: int = 25  # prompts at a time
    heads_to_ablate: tuple[Heads, ...] = ()  # sets of heads to ablate
    n_pairs: int = 0  # of the most frequent winners, to ablate besides
    keeps_streams: bool = True  # without them there is no Fig. 6, and a survey is a twentieth
    # takes each batch done, and the share of all
    report: Callable[[str, float], None] = lambda message, share: None

    def __post_init__(self) -> None:
        self.pairs = prompts.draw(self.count, self.seed)
        self.folder = self.parts / f"{self.source.title}-{self._fingerprint()}"
        self.done = 0

    def _fingerprint(self) -> str:
        """Return a digest of the model's files and of the settings that its batches depend on."""
        folder, commit_hash = (
            Path(self.source.name),
            getattr(self.source.config, "_commit_hash", None),
        )
        # A model on the hub has no such files.
        paths = [folder] if folder.is_file() else sorted(folder.glob("*"))
        files = [(p.name, p.stat().st_mtime_ns) for p in paths if p.is_file()]
        settings = [
            FORMAT,
            self.template.text,
            self.count,
            self.seed,
            self.batch,
            self.source.dtype,
            self.keeps_streams,
        ]
        return hashlib.sha256(
            json.dumps([str(folder), commit_hash, files, settings]).encode()
        ).hexdigest()[:12]

    def run(self) -> Survey:
        """Measure what is not on disk yet, and put everything together."""
        answers = self._answers()
        wins = self._stored("wins").sum(0)
        frequent = staircases.most_frequent(wins.sum(0))
        pairs = staircases.frequent_pairs(wins.sum(0), self.n_pairs)
        excluded = {*frequent}.union(*self.heads_to_ablate)
        random = staircases.random_pairs(
            self.source.size, [*self.heads_to_ablate, *pairs], excluded, self.seed
        )
        targets = {"asked": self.heads_to_ablate, "frequent": pairs, "random": random}
        ablated = tuple(
            Ablated(heads, kind, self._answers(heads))
            for kind in targets
            for heads in targets[kind]
        )
        attention = [
            pd.DataFrame(self._stored("maps", *head).double().numpy()) for head in frequent
        ]
        statistics = torch.tensor(np.array([[frame.mean(), frame.std()] for frame in attention]))
        maps = statistics.nan_to_num(0).float().unflatten(-1, (len(staircases.MARKS), -1))
        mean, std = maps.tril().unbind(1)  # digits in one token would see those after them
        replies = self._stored("tokens")[:, :WIDTH].tolist()
        read = [
            [self.source.tokenizer.decode(token).strip() for token in reply] for reply in replies
        ]
        totals = [[*str(total).ljust(WIDTH)] for total in self.pairs.sum(1).tolist()]
        spelled = torch.from_numpy(np.array(read) == np.array(totals)).int().cumprod(1).bool()
        points, share = self._axes(spelled)
        record: dict[str, Any] = {
            "model": self.source.name,
            "dtype": self.source.dtype,
            "device": self.source.device,
        }
        record |= {"seed": self.seed, "batch": self.batch, "commit": commit()}
        record |= {"torch": torch.__version__, "transformers": library().__version__}
        return Survey(
            self.source.title, answers, wins, mean, std, points, share, spelled, ablated, record
        )

    @cached_property
    def model(self) -> Any:
        """The weights, read when they are first needed."""
        return self.source.load()

    def _paths(self, name: str) -> list[Path]:
        """The files of a pass over all prompts, one for each batch."""
        return [
            self.folder / f"{name}-{i:04d}.safetensors" for i in range(-(-self.count // self.batch))
        ]

    def _stored(self, key: str, *index: int, name: str = "intact") -> Tensor:
        """Return an entry of the tensor `key` that a pass has stored, for all prompts."""
        parts = []
        for path in self._paths(name):
            with open_tensors(path, "delete it and run the same command again") as file:
                parts.append(file.get_slice(key)[index])
        return torch.cat(parts)

    def _answers(self, heads: Heads = ()) -> Answers:
        """Return the answers with these heads ablated; batches on disk are not measured again."""
        name = (
            "without-" + format_heads(heads).replace(":", "_").replace(",", "-")
            if heads
            else "intact"
        )
        paths = self._paths(name)
        total = (1 + 2 * (len(self.heads_to_ablate) + self.n_pairs)) * len(paths)
        for path, pairs in zip(paths, self.pairs.split(self.batch), strict=True):
            if not path.exists():
                with ablated(self.model, heads):
                    batch = (
                        {"tokens": self._generate(self._inputs(pairs))[0]}
                        if heads
                        else self._observe(pairs)
                    )
                with replacing(path) as temporary:
                    save_file(
                        {key: tensor.contiguous() for key, tensor in batch.items()}, temporary
                    )
            self.done += 1
            self.report(path.stem, self.done / total)
        replies = self.source.tokenizer.batch_decode(
            self._stored("tokens", name=name), skip_special_tokens=True
        )
        return Answers(self.pairs, tuple(replies), self.template)

    def _inputs(self, pairs: Int[Tensor, "batch 2"]) -> Any:
        """The prompts' tokens, padded on the left."""
        texts = [self.template.prompt(a, b) for a, b in pairs.tolist()]
        return self.source.tokenizer(
            texts, return_tensors="pt", padding=True, return_offsets_mapping=True
        )

    def _generate(
        self, inputs: Any, attend: bool = False
    ) -> tuple[Int[Tensor, "batch token"], Any]:
        """Return the tokens that follow each prompt by greedy search, and attention if `attend`."""
        ids = inputs["input_ids"].to(self.model.device)
        mask = inputs["attention_mask"].to(self.model.device)
        pad = self.source.tokenizer.pad_token_id
        greedy = library().GenerationConfig(
            do_sample=False,
            num_beams=1,
            use_cache=True,
            return_dict_in_generate=True,
            max_new_tokens=self.template.tokens,
            pad_token_id=pad,
            eos_token_id=self.model.generation_config.eos_token_id,
            output_attentions=attend,
        )
        with torch.inference_mode():
            output = self.model.generate(ids, attention_mask=mask, generation_config=greedy)
        new = output.sequences[:, ids.shape[1] :].cpu()
        return F.pad(new, (0, self.template.tokens - new.shape[1]), value=pad), output.attentions

    def _observe(self, pairs: Int[Tensor, "batch 2"]) -> dict[str, Tensor]:
        """Return tokens, wins, maps and streams of a batch; NaN beyond what was generated."""
        inputs = self._inputs(pairs)
        pads, cells = (inputs["attention_mask"] == 0).sum(1), []
        for (a, b), offsets, pad in zip(
            pairs.tolist(), inputs["offset_mapping"].tolist(), pads.tolist(), strict=True
        ):
            places = prompts.locate(self.template.prompt(a, b), offsets[pad:], a, b)
            cells.append(
                staircases.cells(places, self.template.tokens) + staircases.map_cells(places)
            )
        rows, columns = torch.tensor(cells).permute(2, 0, 1) + pads.unsqueeze(1)
        with cached_streams(self.model) as streams:
            new, patterns = self._generate(inputs, attend=True)
        end = self.model.generation_config.eos_token_id
        ends = torch.isin(new, torch.tensor(-1 if end is None else end))
        # the one that ended it included
        produced = torch.where(ends.any(1), ends.int().argmax(1) + 1, new.shape[1])
        # the last token is never fed back
        exists = rows < inputs["input_ids"].shape[1] + produced.unsqueeze(1) - 1
        attention = staircases.attention_at(patterns, rows, columns)
        n = DIGITS + self.template.tokens  # of the search; the others are for maps
        maps = attention.where(exists[:, None, None], float("nan"))[..., n:].permute(1, 2, 0, 3)
        stream = torch.stack(streams).unflatten(0, (-1, self.source.size.layers, 2))
        batch = {
            "tokens": new,
            "wins": staircases.count_wins(attention[..., :n], exists[:, :n]).unsqueeze(0),
            "maps": maps.to(stream.dtype),
        }
        if self.keeps_streams:
            padding = 4 * (0, 0) + (0, WIDTH - len(stream))
            batch["stream"] = F.pad(stream, padding, value=float("nan"))
        return batch

    def _axes(self, spelled: Bool[Tensor, "prompt output"]) -> tuple[Tensor, Tensor]:
        """Return each stream on its leading axes, and the axes' shares of the variance.

        Both are NaN for prompts whose digit is not correct. Without streams there are no axes.
        """
        n_layers = self.source.size.layers
        n_axes = geometry.AXES if self.keeps_streams else 0
        points = torch.full((n_layers, 2, WIDTH, self.count, n_axes), float("nan"))
        share = torch.full((n_layers, 2, WIDTH, n_axes), float("nan"))
        if not self.keeps_streams:
            return points, share
        for output, layer, after in product(range(WIDTH), range(n_layers), range(2)):
            right = spelled[:, output]
            if int(right.sum()) > geometry.AXES:
                digit, carry = prompts.digit_and_carry(self.pairs, output)
                x = self._stored("stream", output, layer, after)[right].float()
                points[layer, after, output, right], shares = geometry.principal_axes(
                    x, [carry[right], digit[right]]
                )
                share[layer, after, output] = torch.tensor(shares)
        return points, share
