"""Which language model a page shows: the small one, a survey or weights of the reader's, or the author's recording."""

import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch

from carry_core.draws import check_seed
from carry_core.errors import BadInput
from carry_core.files import data_dir
from carry_core.llm import heads, prompts, recorded
from carry_core.llm.recorded import MODELS, Recording
from carry_core.llm.survey import Survey

SMALL = "small"
DEFAULT = "default"
BATCH = 500  # of the small model
MOST_PAIRS = 28  # of the eight most frequent winners


def check(
    source: str,
    group: str,
    model: str | None = None,
    n_examples: Any = 1000,
    seed: Any = 42,
    n_pairs: int = 0,
    theirs: str = "llemma",
) -> str:
    """The name of the model that is meant.

    Args:
        source: `ours` or `author`.
        group: a language model, or `default`: the small one of ours, `theirs` of the author's.
        model: weights to use in its place, None for none.
        n_examples: prompts.
        seed: of the prompts and of the random pairs.
        n_pairs: how many pairs of frequent winners are ablated, and as many random ones.
        theirs: what `default` means of the author's.

    Raises:
        BadInput: one of them is not what it should be.
    """
    if source not in ("ours", "author"):
        raise BadInput(f"Unknown source {source!r}: expected 'ours' or 'author'.")
    known = (DEFAULT, SMALL, *MODELS)
    if group not in known or (source, group) == ("author", SMALL):
        raise BadInput(f"Unknown language model {group!r} from {source}: expected one of {', '.join(known)}.")
    if model is not None and source == "author":
        raise BadInput(f"model={model!r}: expected None for source='author', whose recordings need no weights.")
    if type(n_examples) is not int or not 100 <= n_examples <= 100_000:
        raise BadInput(f"n_examples={n_examples!r}: expected a whole number of prompts from 100 to 100,000.")
    check_seed(seed)
    if type(n_pairs) is not int or not 0 <= n_pairs <= MOST_PAIRS:
        raise BadInput(f"n_pairs={n_pairs!r}: expected a whole number of pairs from 0 to {MOST_PAIRS}.")
    return group if group != DEFAULT else SMALL if source == "ours" else theirs


def training() -> str:
    """How the small model was made, in words, for the page that introduces it.

    Raises:
        BadInput: its record is missing or damaged.
    """
    path = data_dir() / "llm" / SMALL / "training.json"
    try:
        record = json.loads(path.read_text())
        *others, kept = [(f"{s['width']}", f"{s['parameters']:,}", f"{s['accuracy']:.3f}") for s in record["ladder"]]
        tried = " and ".join(f"width {width} ({n} parameters) reached {accuracy}" for width, n, accuracy in others)
        minutes = f"{record['steps']:,} steps, {max(1, round(record['seconds'] / 60))} minutes on a {record['device']}"
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{path} cannot be read ({error}): restore it with git, or run `carry train-llm`.") from error
    first = f"{tried[:1].upper()}{tried[1:]}; kept was" if tried else "Kept was"
    return f"{first} width {kept[0]} ({kept[1]} parameters), which reached {kept[2]} on other sums after {minutes}."


def load(
    source: str,
    group: str,
    model: str | None = None,
    n_examples: Any = 1000,
    seed: Any = 42,
    n_pairs: int = 0,
    theirs: str = "llemma",
) -> Survey | Recording:
    """What is known of the model: the author's recording, a survey that is on disk, or one that is made now.

    Args:
        source: as in `check`, like the others.
        group: says of other weights how they are asked, and which pairs the paper ablates.
        model: a folder or hub id.
        n_examples: prompts.
        seed: of prompts and random pairs.
        n_pairs: frequent and random pairs.
        theirs: what `default` means of the author's.

    Raises:
        BadInput: it is not at hand; says what to do.
    """
    name = check(source, group, model, n_examples, seed, n_pairs, theirs)
    if source == "author":
        return recorded.recording(name)
    if name in MODELS and model is None:
        return recorded.surveyed(name)
    with warnings.catch_warnings():  # tqdm would like a notebook to have ipywidgets
        warnings.simplefilter("ignore")
        from carry_core.llm import loading, surveyor  # takes seconds: `transformers`

    template = prompts.template(MODELS[name].template if name in MODELS else "bare")
    asked = MODELS[name].pairs if name in MODELS else ()
    device = "cuda" if torch.cuda.is_available() and model is not None else "cpu"
    batch = BATCH if model is None else 25
    source_ = loading.find(model or str(data_dir() / "llm" / SMALL), template, device, None, batch, asked)
    parsed = tuple(heads.parse(text, source_.size) for text in asked)
    plan = surveyor.Plan(template, n_examples, seed, batch, parsed, n_pairs)
    if model is not None:  # hours: to be gone on with
        return surveyor.Surveyor(source_, plan, data_dir() / "checkpoints" / "llm").run()
    with tempfile.TemporaryDirectory() as parts:
        return surveyor.Surveyor(source_, plan, Path(parts)).run()
