"""The language model that a page shows: the author's recording of a 7B model, a survey of one, or the small model.

`carry import-author` converts the recordings (see `author`). Llemma's and Zephyr's replies are all
there, of Alpaca's the first hundred.
"""

import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator

from carry_core import runs
from carry_core.errors import BadInput, check_whole
from carry_core.files import author_dir, data_dir, open_tensors, reading
from carry_paper.llm import prompts, survey
from carry_paper.llm.model import MOST_PAIRS, inspect_model, parse_heads
from carry_paper.schemas import read_json

SMALL = "small"
REMEDY = "delete it and run `carry import-author DIR` again"
Share = Annotated[float, Field(ge=0, le=1)]


class Recorded(BaseModel):
    """The texts of a recording, one entry for each prompt; of the generations perhaps only the first."""

    model_config = ConfigDict(extra="forbid", strict=True)

    prompts: list[str]
    correct: list[bool]
    generations: Annotated[list[str], Field(min_length=1)]
    accuracy: Share

    @model_validator(mode="after")
    def check_lengths(self) -> "Recorded":
        """Raise `ValueError` unless there are as many verdicts as prompts, and no more generations."""
        if not len(self.generations) <= len(self.prompts) == len(self.correct):
            raise ValueError("its lists are of different prompts")
        return self


class SmallTraining(BaseModel):
    """The record of the small model's training; `ladder` has the models that were tried before it."""

    model_config = ConfigDict(extra="allow", strict=True)

    recipe: dict[str, Any]
    steps: int
    seconds: float
    parameters: int = 0  # in records without a ladder
    device: str
    history: Annotated[list[dict[str, int | float]], Field(min_length=1)]
    ladder: list[dict[str, int | float]] = []


@dataclass(frozen=True)
class PublishedModel:
    """A 7B model of Tab. 2."""

    key: str
    title: str  # as the paper writes it
    template: str
    weights: str  # on the hub; the author trained one himself, and did not release it
    pairs: tuple[str, ...]  # the heads that the paper ablates, as the command line takes them

    @property
    def command(self) -> str:
        """The command that surveys it."""
        asked = " ".join(f"--ablate {pair}" for pair in self.pairs)
        template = "" if self.template == "bare" else f" --template {self.template}"
        return f"carry llm {self.weights}{template} {asked} --pairs 3 --out data/llm/{self.key}"


_LISTED = (
    PublishedModel("alpaca", "Alpaca 7B", "alpaca", "PATH_TO_ALPACA", ("6:23,13:15",)),
    PublishedModel("llemma", "Llemma 7B", "bare", "EleutherAI/llemma_7b", ("13:23,15:15",)),
    PublishedModel(
        "zephyr",
        "Zephyr 7B",
        "bare",
        "HuggingFaceH4/zephyr-7b-beta",
        ("17:25,17:26", "20:30,20:31"),
    ),
)
MODELS = {model.key: model for model in _LISTED}


@dataclass(frozen=True)
class Recording(survey.Observations):
    """What the author released of one model: prompts, generations of all or the first of them, wins in one cell."""

    correct: list[bool]  # whether each prompt was answered rightly, as he recorded it
    accuracy: float  # as he recorded it
    # as he recorded it without the addition heads; None where he released none
    ablated_accuracy: float | None

    @property
    def marks(self) -> list[str]:
        """Axis labels of the maps: none, since the recording does not say which tokens the rows are."""
        return [""] * self.mean.shape[-1]

    @property
    def provenance(self) -> str:
        """One sentence on where it comes from, for the page that shows it."""
        n = len(self.answers.replies)
        return f"{self.title}: {n:,} of {len(self.correct):,} generations, recorded and released by the author."


def recording(key: str) -> Recording:
    """The author's recording of a model; BadInput where it was not imported, or is damaged."""
    path, ablated = (author_dir() / "llm" / f"{name}.json" for name in (key, f"{key}_ablated"))
    if not path.exists():
        raise BadInput(
            f"No recording of {key} at hand: expected `carry import-author DIR` of the whole release."
        )
    text = read_json(path, Recorded, REMEDY)
    with open_tensors(path.with_suffix(".safetensors"), REMEDY) as file:
        wins, mean, std = (
            file.get_tensor(name) for name in ("wins", "attention_mean", "attention_std")
        )
        if (
            wins.ndim != 2
            or mean.ndim != 3
            or mean.shape != std.shape
            or mean.shape[1] != mean.shape[2]
        ):
            raise ValueError(
                "its tensors are not wins by [layer, head] and attention by [map, query, key]"
            )
    with reading(path, REMEDY):
        sums = [re.findall(r"([0-9]+) \+ ([0-9]+)", prompt)[-1] for prompt in text.prompts]
        pairs = torch.tensor([[int(a), int(b)] for a, b in sums])
    replies = tuple(text.generations)
    answers = prompts.Answers(
        pairs[: len(replies)], replies, prompts.TEMPLATES[MODELS[key].template]
    )
    attention = (wins.long()[None], mean.float(), std.float())
    without = read_json(ablated, Recorded, REMEDY).accuracy if os.path.lexists(ablated) else None
    return Recording(MODELS[key].title, answers, *attention, text.correct, text.accuracy, without)


def small_training() -> dict[str, Any]:
    """How the small model was trained; `BadInput` if it does not say."""
    path = data_dir() / "llm" / SMALL / "training.json"
    return read_json(path, SmallTraining, "train it with `carry train-llm`").model_dump(
        exclude_unset=True
    )


def stored_survey(key: str) -> survey.Survey:
    """A survey of our own of one of the three models; BadInput, with the command that makes it, where there is none."""
    path = data_dir() / "llm" / key / survey.FILE
    if not path.exists():
        raise BadInput(f"Needs the weights of {MODELS[key].title}: `{MODELS[key].command}`.")
    return survey.read(path)


def load(
    source: str,
    group: str,
    model: str | None = None,
    n_examples: Any = 1000,
    seed: Any = 42,
    n_pairs: Any = 0,
    theirs: str = "llemma",
) -> survey.Survey | Recording:
    """What is known of a model: the author's recording, a survey that is on disk, or one that is made now.

    BadInput, with what to do, if a parameter is not what it should be or the model is not at hand.
    `group` is a language model, or `default`: the small one of ours, `theirs` of the author's. If
    `model`, a folder or hub id, is given, `group` says how it is asked and which pairs are ablated.
    `seed` is that of the `n_examples` prompts and of random pairs, of which as many are ablated as
    of frequent winners, `n_pairs`.
    """
    runs.folder(source)  # refuses any other than the two
    names = ("default", *([SMALL] if source == "ours" else []), *MODELS)
    if group not in names:
        raise BadInput(
            f"Unknown language model {group!r} from {source}: expected one of {', '.join(names)}."
        )
    if model is not None and not isinstance(model, str):
        raise BadInput(f"model={model!r}: expected None, a folder or an id on the hub, as text.")
    if model is not None and source == "author":
        raise BadInput(
            f"model={model!r}: expected None for source='author', whose recordings need no weights."
        )
    check_whole("n_examples", n_examples, 100, 100_000, "prompts")
    check_whole("seed", seed, 0, 2**63 - 1)
    check_whole("n_pairs", n_pairs, 0, MOST_PAIRS, "pairs")
    if source == "author":
        return recording(theirs if group == "default" else group)
    if (published := MODELS.get(group)) and model is None:
        return stored_survey(group)
    template = prompts.TEMPLATES[published.template if published else "bare"]
    device = "cuda" if torch.cuda.is_available() and model is not None else "cpu"
    weights = inspect_model(model or str(data_dir() / "llm" / SMALL), template, device)
    asked = tuple(
        parse_heads(text, weights.size) for text in (published.pairs if published else ())
    )
    with tempfile.TemporaryDirectory() as folder:  # other weights take hours: to be gone on with
        parts, batch = (
            (Path(folder), 500) if model is None else (data_dir() / "checkpoints" / "llm", 25)
        )
        return survey.Surveyor(
            weights, parts, template, n_examples, seed, batch, asked, n_pairs
        ).run()
