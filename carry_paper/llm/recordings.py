"""The language model that a page shows: a recording, a stored survey, or the small model.

The author recorded three 7B models; `carry import-author` converts his recordings (see `author`).
They have all replies of Llemma and Zephyr, and the first hundred of Alpaca.
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
from carry_paper.llm import head_survey, prompts
from carry_paper.llm.model import MOST_PAIRS, inspect_model, parse_heads
from carry_paper.schemas import read_json

SMALL = "small"
CANNOT_ADD = (
    "smollm2"  # SmolLM2 with 135M parameters, which gets one or two sums in a hundred right
)
# The same network as it is before training, by the seed of its weights.
RANDOM_WEIGHTS = ("smollm2_random0", "smollm2_random1", "smollm2_random2")
REMEDY = "delete it and run `carry import-author DIR` again"
Share = Annotated[float, Field(ge=0, le=1)]


class Recorded(BaseModel):
    """The texts of a recording, with an entry for each prompt; later generations may be missing."""

    model_config = ConfigDict(extra="forbid", strict=True)

    prompts: list[str]
    correct: list[bool]
    generations: Annotated[list[str], Field(min_length=1)]
    accuracy: Share

    @model_validator(mode="after")
    def check_lengths(self) -> "Recorded":
        """Raise `ValueError` unless all prompts have a verdict, and no more have a generation."""
        if not len(self.generations) <= len(self.prompts) == len(self.correct):
            raise ValueError("its lists are of different prompts")
        return self


class SmallTraining(BaseModel):
    """The record of the small model's training; `ladder` lists models that were tried before it."""

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
    """A 7B model of Tab. 2.

    Attributes:
        key: The name in files and on pages.
        title: The name in the paper.
        template: The prompt template.
        weights: The id on the hub; the author did not release the model that he trained himself.
        pairs: The heads that the paper ablates, as the command line takes them.
    """

    key: str
    title: str
    template: str
    weights: str
    pairs: tuple[str, ...]

    @property
    def command(self) -> str:
        """The command line that surveys the model."""
        ablations = " ".join(f"--ablate {pair}" for pair in self.pairs)
        template = "" if self.template == "bare" else f" --template {self.template}"
        return f"carry llm {self.weights}{template} {ablations} --pairs 3 --out data/llm/{self.key}"


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
N_HEADS = 32 * 32  # of each of these models: 32 layers of 32 heads


@dataclass(frozen=True)
class Recording(head_survey.Observations):
    """The author's recording of one model; `wins` has a single cell.

    Attributes:
        correct: True for each prompt that was answered correctly, as he recorded it.
        accuracy: The accuracy that he recorded.
        ablated_accuracy: The same without the addition heads; None if he did not release it.
    """

    correct: list[bool]
    accuracy: float
    ablated_accuracy: float | None

    @property
    def marks(self) -> list[str]:
        """Empty axis labels of the maps, since the recording does not name the tokens."""
        return [""] * self.mean.shape[-1]

    @property
    def provenance(self) -> str:
        """A sentence on the source, for the page that shows the recording."""
        n_replies = len(self.answers.replies)
        return (
            f"{self.title}: {n_replies:,} of {len(self.correct):,} generations,"
            " recorded and released by the author."
        )


def recording(key: str) -> Recording:
    """Load the author's recording of a model; raise `BadInput` if it is missing or damaged."""
    path = author_dir() / "llm" / f"{key}.json"
    ablated_path = author_dir() / "llm" / f"{key}_ablated.json"
    if not path.exists():
        raise BadInput(
            f"No recording of {key} at hand:"
            " expected `carry import-author DIR` of the whole release."
        )
    text = read_json(path, Recorded, REMEDY)
    with open_tensors(path.with_suffix(".safetensors"), REMEDY) as file:
        wins = file.get_tensor("wins")
        mean = file.get_tensor("attention_mean")
        std = file.get_tensor("attention_std")
        are_square_maps = mean.ndim == 3 and mean.shape[1] == mean.shape[2]
        if wins.ndim != 2 or not are_square_maps or mean.shape != std.shape:
            raise ValueError(
                "its tensors are not wins by [layer, head] and attention by [map, query, key]"
            )
    with reading(path, REMEDY):
        sums = [re.findall(r"([0-9]+) \+ ([0-9]+)", prompt)[-1] for prompt in text.prompts]
        pairs = torch.tensor([[int(a), int(b)] for a, b in sums])
    replies = tuple(text.generations)
    template = prompts.TEMPLATES[MODELS[key].template]
    ablated_accuracy = None
    if os.path.lexists(ablated_path):
        ablated_accuracy = read_json(ablated_path, Recorded, REMEDY).accuracy
    return Recording(
        title=MODELS[key].title,
        answers=prompts.Answers(pairs[: len(replies)], replies, template),
        wins=wins.long()[None],
        mean=mean.float(),
        std=std.float(),
        correct=text.correct,
        accuracy=text.accuracy,
        ablated_accuracy=ablated_accuracy,
    )


def small_training() -> dict[str, Any]:
    """Return the small model's training; raise `BadInput` if it is missing or damaged."""
    path = data_dir() / "llm" / SMALL / "training.json"
    record = read_json(path, SmallTraining, "train it with `carry train-llm`")
    return record.model_dump(exclude_unset=True)


def stored_survey(key: str) -> head_survey.Survey:
    """Load our survey of a 7B model; raise `BadInput`, with the command, if there is none."""
    path = data_dir() / "llm" / key / head_survey.FILE
    if not path.exists():
        raise BadInput(f"Needs the weights of {MODELS[key].title}: `{MODELS[key].command}`.")
    return head_survey.read(path)


def control(name: str) -> head_survey.Survey:
    """Load our survey of `CANNOT_ADD` or one of `RANDOM_WEIGHTS`; raise `BadInput` without one."""
    path = data_dir() / "llm" / name / head_survey.FILE
    if not path.exists():
        raise BadInput("It needs a model that cannot add: `make llm`.")
    return head_survey.read(path)


def load(
    source: str,
    group: str,
    model: str | None = None,
    n_examples: Any = 1000,
    seed: Any = 42,
    n_pairs: Any = 0,
    theirs: str = "llemma",
) -> head_survey.Survey | Recording:
    """Load the author's recording of a model, load our survey of one, or survey one now.

    Args:
        source: `author` for recordings, `ours` for surveys.
        group: A language model, or `default`: our small model, or `theirs` of the author's.
        model: A folder or hub id to survey now. `group` then says which template it is given and
            which pairs are ablated.
        n_examples: The number of prompts.
        seed: The seed of the prompts and of the random pairs.
        n_pairs: The number of pairs of frequent winners to ablate; each is compared with a random
            pair.
        theirs: The author's default model.

    Raises:
        BadInput: A parameter is not as expected, or the model is not at hand.
    """
    check_source(source, group, model)
    check_whole("n_examples", n_examples, 100, 100_000, "prompts")
    check_whole("seed", seed, 0, 2**63 - 1)
    check_whole("n_pairs", n_pairs, 0, MOST_PAIRS, "pairs")
    if source == "author":
        return recording(theirs if group == "default" else group)
    published = MODELS.get(group)
    if published and model is None:
        return stored_survey(group)

    template = prompts.TEMPLATES[published.template if published else "bare"]
    device = "cuda" if torch.cuda.is_available() and model is not None else "cpu"
    weights = inspect_model(model or str(data_dir() / "llm" / SMALL), template, device)
    pairs = published.pairs if published else ()
    heads_to_ablate = tuple(parse_heads(pair, weights.size) for pair in pairs)
    with tempfile.TemporaryDirectory() as temporary:
        # Surveys of other models take hours, so their batches are kept, to go on from.
        keeps_batches = model is not None
        surveyor = head_survey.Surveyor(
            weights,
            data_dir() / "checkpoints" / "llm" if keeps_batches else Path(temporary),
            template=template,
            count=n_examples,
            seed=seed,
            batch=25 if keeps_batches else 500,
            heads_to_ablate=heads_to_ablate,
            n_pairs=n_pairs,
        )
        return surveyor.run()


def check_source(source: str, group: str, model: Any) -> None:
    """Raise `BadInput` if a source has no such language model, or takes no `model`."""
    runs.folder(source)  # refuses another source
    names = ["default", *MODELS]
    if source == "ours":
        names.insert(1, SMALL)
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
