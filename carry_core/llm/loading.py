"""A language model from a folder or the Hugging Face hub, refused with one line before anything long starts."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from logging import ERROR
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
from huggingface_hub import constants
from huggingface_hub import logging as hub_logging
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from carry_core.errors import BadInput
from carry_core.llm import heads
from carry_core.llm.architecture import Size, blocks
from carry_core.llm.positions import check_tokenizer
from carry_core.llm.prompts import Template

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
GIB = 2**30
MOST_SCRATCH = 4 * GIB


@dataclass(frozen=True)
class Source:
    """A model that can be loaded: what is known of it before its weights are read.

    Attributes:
        name: a folder, or an id on the hub.
        weights: bytes of its parameters.
    """

    name: str
    device: str
    dtype: str
    config: Any
    tokenizer: Any
    size: Size
    weights: int

    @property
    def title(self) -> str:
        """The last part of the name."""
        return Path(self.name).resolve().name

    def load(self) -> Any:
        """Read the weights.

        Raises:
            BadInput: they are missing or damaged, or the layers are laid out in an unknown way.
        """
        with quiet():
            try:
                model: Any = AutoModelForCausalLM.from_pretrained(
                    self.name, dtype=DTYPES[self.dtype], attn_implementation="eager", **_where(self.name)
                )
            except Exception as error:  # whatever the files may hold
                raise BadInput(f"Cannot load {self.name}: {_line(error)}. Fetch it again.") from error
        blocks(model)
        return model.to(self.device).eval()


def find(
    name: str,
    template: Template,
    device: str = "cpu",
    dtype: str | None = None,
    batch: int = 25,
    ablate: Sequence[str] = (),
) -> Source:
    """Look at a model's config and tokenizer, and at the memory, without reading its weights.

    Args:
        name: a folder in the format of `transformers`, or an id on the hub.
        template: what will be asked.
        device: `cpu` or `cuda`.
        dtype: one of `DTYPES`; what the config says if None.
        batch: prompts at a time.
        ablate: heads that will be ablated, as `heads.parse` takes them.

    Raises:
        BadInput: there is no such model, its tokenizer cannot write sums, or the memory is too small.
    """
    if dtype is not None and dtype not in DTYPES:
        raise BadInput(f"Unknown dtype {dtype!r}: expected one of {', '.join(DTYPES)}.")
    _check_device(device)
    name = str(Path(name).expanduser()) if name.startswith("~") else name
    config = _config(name)
    size = Size.of(config)
    for text in ablate:
        heads.parse(text, size)
    if dtype is None:
        own = str(getattr(config, "dtype", None)).removeprefix("torch.")
        dtype = own if own in DTYPES else "float32"
    with quiet():
        try:
            with torch.device("meta"):
                empty = AutoModelForCausalLM.from_config(config, dtype=DTYPES[dtype])
            tokenizer = AutoTokenizer.from_pretrained(name, **_where(name))
        except Exception as error:
            raise BadInput(
                f"{name} is no causal language model with a tokenizer ({_line(error)}):"
                " expected what AutoModelForCausalLM and AutoTokenizer can load."
            ) from error
    blocks(empty)
    check_tokenizer(tokenizer, template)
    tokenizer.padding_side = "left"
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    weights = sum(p.numel() * p.element_size() for p in empty.parameters())
    length = len(tokenizer(template.prompt(9999, 9999))["input_ids"])
    _check_memory(name, device, dtype, weights, scratch(config, size, DTYPES[dtype].itemsize, batch, length))
    return Source(name, device, dtype, config, tokenizer, size, weights)


def scratch(config: Any, size: Size, item: int, batch: int, length: int, generated: int = 10) -> int:
    """Bytes needed above the weights: cache, one layer's attention, what is read off, and the last logits.

    By this 7B weights take 0.6 GiB more in float16 with 25 bare prompts, 1.7 GiB with Alpaca's template; slices of
    two and six of their layers were measured to take less.
    """
    text = config.get_text_config()
    shared = getattr(text, "num_key_value_heads", None) or size.heads
    tokens = length + generated
    cache = 2 * (size.layers + 1) * shared * size.d_head * tokens * item  # one layer's is copied as it grows
    attention = 3 * size.heads * tokens**2 * 4
    inner = (getattr(text, "intermediate_size", None) or 4 * size.width) * 3 * tokens * item
    stream = 2 * size.layers * size.width * 5 * item + 4 * size.width * tokens * 4
    cells = size.layers * size.heads * 200 * (4 + 3 * 8)  # as read, then summed in float64
    return int(batch * (cache + attention + inner + stream + cells + 2 * text.vocab_size * 4))


def _check_device(device: str) -> None:
    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise BadInput(f"Unknown device {device!r}: expected cpu, cuda or cuda:1.") from error
    if kind == "cuda" and not torch.cuda.is_available():
        raise BadInput(f"Device {device}: PyTorch finds no CUDA device here; expected cpu.")
    if kind not in ("cpu", "cuda"):
        raise BadInput(f"Device {device}: expected cpu or cuda.")


def _check_memory(name: str, device: str, dtype: str, weights: int, above: int) -> None:
    free = available(device)
    if weights + above > free:
        other = "a smaller --batch" if dtype != "float32" else "--dtype bfloat16, a smaller --batch"
        raise BadInput(
            f"{name} needs {weights / GIB:.1f} GiB for its weights in {dtype} and {above / GIB:.1f} GiB to work in, but"
            f" {device} has {free / GIB:.1f} GiB free: expected as much; choose {other}, or another machine."
        )
    if above > MOST_SCRATCH:
        raise BadInput(
            f"{name} would need {above / GIB:.1f} GiB above its weights, expected {MOST_SCRATCH / GIB:.0f} at most:"
            " choose a smaller --batch."
        )


def available(device: str) -> int:
    """Bytes of memory that are free on a device."""
    if device.startswith("cuda"):
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):  # not Linux: all memory, for want of better
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _config(name: str) -> Any:
    """The config of a folder or hub id."""
    path = Path(name)
    local = path.exists() or name.startswith((".", "/")) or name.count("/") > 1
    if local and not (path / "config.json").is_file():
        what = "has no config.json" if path.is_dir() else "is not a folder"
        raise BadInput(f"{name} {what}: expected a folder with a model in the format of `transformers`.")
    with quiet():
        try:
            return AutoConfig.from_pretrained(name, **_where(name))
        except Exception as error:
            if path.is_dir():
                raise BadInput(
                    f"{path / 'config.json'} cannot be read ({_line(error)}): fetch the model again."
                ) from error
            if constants.is_offline_mode():
                raise BadInput(
                    f"{name} is neither a folder nor a model in the hub's cache, and HF_HUB_OFFLINE is set:"
                    " expected a folder, or unset HF_HUB_OFFLINE to fetch it from the hub."
                ) from error
            raise BadInput(
                f"{name} is not a folder, and the hub does not give it ({_line(error)}): expected a folder or a hub id."
            ) from error


def _where(name: str) -> dict[str, bool]:
    """A folder needs no network, whatever it is that its files refer to."""
    return {"local_files_only": True} if Path(name).is_dir() else {}


def _line(error: Exception) -> str:
    """What went wrong, on one line."""
    return f"{type(error).__name__}: {shorten(str(error), 120, placeholder='…')}"


@contextmanager
def quiet() -> Iterator[None]:
    """Without the chatter and the progress bars of `transformers`, and of the hub's retries."""
    before, bars, hub = logging.get_verbosity(), logging.is_progress_bar_enabled(), hub_logging.get_verbosity()
    logging.set_verbosity_error()
    hub_logging.set_verbosity(ERROR)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        hub_logging.set_verbosity(hub)
        if bars:
            logging.enable_progress_bar()
