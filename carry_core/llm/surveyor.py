"""Surveys a language model: asks, watches, ablates, batch by batch, and goes on where it was stopped.

A batch is written to disk as soon as it is done: 2.7 GB in all for 7B weights in 16 bits and 1000 prompts, since the
residual streams become coordinates on a few axes only when all are there. They are never in memory together. What is on
disk serves later surveys of the same model that ablate other heads.
"""

import hashlib
import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
import transformers
from jaxtyping import Int
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import GenerationConfig

from carry_core.files import commit, replacing
from carry_core.geometry import AXES, principal_axes
from carry_core.llm import heads, prompts, staircases
from carry_core.llm.answers import Answers
from carry_core.llm.heads import Heads
from carry_core.llm.loading import Source
from carry_core.llm.observer import OUTPUTS, Observer
from carry_core.llm.positions import locate
from carry_core.llm.prompts import Template
from carry_core.llm.survey import FORMAT, Ablated, Survey, label

STREAM = "stream"  # what a part calls its residual streams
Part = tuple[dict[str, Tensor], list[str]]  # tensors, and one reply for each prompt


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
        self.parts = parts / f"{source.title}-{fingerprint(source, plan)}"
        self.model: Any = None
        frequent = plan.n_frequent
        self.total = (1 + 2 * (len(plan.asked) + frequent)) * len(self.batches)
        self.done = 0

    @property
    def batches(self) -> list[Int[Tensor, "batch 2"]]:
        return list(self.pairs.split(self.plan.batch))

    @property
    def n_batches(self) -> int:
        return len(self.batches)

    def run(self) -> Survey:
        """Measure what is not on disk yet, and put everything together."""
        intact = [self._part(f"intact-{i:04d}", partial(self._observe, batch)) for i, batch in enumerate(self.batches)]
        wins = torch.stack([part["wins"] for part, _ in intact]).sum(0)
        wanted = [(chosen, "asked") for chosen in self.plan.asked]
        wanted += [(pair, "frequent") for pair in heads.frequent_pairs(wins.sum(0), self.plan.n_frequent)]
        compared = {*heads.most_frequent(wins.sum(0))}.union(*self.plan.asked)
        others = heads.random_pairs(self.source.size, len(wanted), compared, self.plan.seed)
        wanted += [(pair, "random") for pair in others]
        ablated = tuple(Ablated(chosen, kind, self._without(chosen)) for chosen, kind in wanted)
        return self._join(intact, wins, ablated)

    def _without(self, chosen: Heads) -> tuple[str, ...]:
        name = "without-" + heads.name(chosen).replace(":", "_").replace(",", "-")

        def ask(batch: Tensor) -> Part:
            with heads.ablated(self._loaded(), chosen):
                return {}, self._generate(batch)[1]

        found = [self._part(f"{name}-{i:04d}", partial(ask, batch)) for i, batch in enumerate(self.batches)]
        return tuple(reply for _, replies in found for reply in replies)

    def _loaded(self) -> Any:
        if self.model is None:
            self.model = self.source.load()
        return self.model

    def _path(self, name: str) -> Path:
        return self.parts / f"{name}.safetensors"

    def _part(self, name: str, measure: Callable[[], Part]) -> Part:
        """One batch, from disk if it is there; its residual stream stays on disk."""
        path = self._path(name)
        found = _read_part(path)
        if found is None:
            tensors, replies = measure()
            with replacing(path) as temporary:
                save_file({"done": torch.ones(1), **tensors}, temporary, {"replies": json.dumps(replies)})
            tensors.pop(STREAM, None)
            found = tensors, replies
        self.done += 1
        self.report(name, min(1.0, self.done / self.total))
        return found

    def _inputs(self, pairs: Int[Tensor, "batch 2"]) -> tuple[list[str], Any]:
        texts = [self.plan.template.prompt(a, b) for a, b in pairs.tolist()]
        return texts, self.source.tokenizer(texts, return_tensors="pt", padding=True, return_offsets_mapping=True)

    def _generate(self, pairs: Int[Tensor, "batch 2"]) -> tuple[Int[Tensor, "batch token"], list[str]]:
        """The tokens that the model adds to each prompt, and their text, decoded greedily."""
        model, tokenizer = self._loaded(), self.source.tokenizer
        _, inputs = self._inputs(pairs)
        ids, mask = inputs["input_ids"].to(model.device), inputs["attention_mask"].to(model.device)
        greedy = GenerationConfig(
            max_new_tokens=self.plan.template.tokens, do_sample=False, num_beams=1, use_cache=True,
            eos_token_id=model.generation_config.eos_token_id, pad_token_id=tokenizer.pad_token_id,
            temperature=1.0, top_p=1.0, top_k=50,
        )  # fmt: skip
        with torch.inference_mode():
            new = model.generate(ids, attention_mask=mask, generation_config=greedy)[:, ids.shape[1] :].cpu()
        return new, tokenizer.batch_decode(new, skip_special_tokens=True)

    def _observe(self, pairs: Int[Tensor, "batch 2"]) -> Part:
        """One batch of the intact model: replies, wins, attention and residual stream."""
        model, template = self._loaded(), self.plan.template
        texts, inputs = self._inputs(pairs)
        length, pads = inputs["input_ids"].shape[1], (inputs["attention_mask"] == 0).sum(1)
        places = [
            locate(text, offsets[pad:], *pair)
            for text, offsets, pad, pair in zip(
                texts, inputs["offset_mapping"].tolist(), pads.tolist(), pairs.tolist(), strict=True
            )
        ]
        n = staircases.n_cells(template.tokens)
        found = [staircases.cells(p, template.tokens) + staircases.map_cells(p) for p in places]
        rows, columns = staircases.padded(found, pads)
        observer = Observer(model, rows, columns, length)
        with observer.watching():
            new, replies = self._generate(pairs)
        there = staircases.reached(rows, length, _produced(new, model.generation_config.eos_token_id))
        wins = staircases.count(staircases.winners(observer.attention[..., :n]), there[:, :n], self.source.size)
        maps, mask = observer.attention[..., n:].double(), there[:, None, None, n:]
        tensors = {
            "wins": wins, "n": mask.sum(0).flatten(), STREAM: observer.stream, "spelled": self._spelled(pairs, new),
            "sum": (maps * mask).sum(0), "squares": (maps.square() * mask).sum(0),
        }  # fmt: skip
        return tensors, replies

    def _spelled(self, pairs: Int[Tensor, "batch 2"], new: Int[Tensor, "batch token"]) -> Tensor:
        """Where the model writes the right digit, one token for each digit so far."""
        right = torch.zeros(len(pairs), OUTPUTS, dtype=torch.bool)
        for i, (total, tokens) in enumerate(zip(pairs.sum(1).tolist(), new.tolist(), strict=True)):
            for j, digit in enumerate(str(total)[: min(OUTPUTS, len(tokens))]):
                if self.source.tokenizer.decode(tokens[j]).strip() != digit:
                    break
                right[i, j] = True
        return right

    def _join(
        self, intact: list[Part], wins: Int[Tensor, "cell layer head"],
        ablated: tuple[Ablated, ...],
    ) -> Survey:  # fmt: skip
        shown = heads.most_frequent(wins.sum(0))
        n, total, squares = (torch.stack([part[key] for part, _ in intact]).sum(0) for key in ("n", "sum", "squares"))
        mean, spread = (torch.stack([x[layer, head] for layer, head in shown]) for x in (total / n, squares / n))
        std = ((spread - mean.square()).clamp(min=0) * n / (n - 1)).sqrt()
        spelled = torch.cat([part["spelled"] for part, _ in intact])
        points, share = self._axes(spelled)
        replies = tuple(reply for _, replies in intact for reply in replies)
        record = {
            "model": self.source.name, "dtype": self.source.dtype, "device": self.source.device,
            "seed": self.plan.seed, "batch": self.plan.batch, "torch": torch.__version__,
            "transformers": transformers.__version__, "commit": commit(),
        }  # fmt: skip
        answers = Answers(self.pairs, replies, self.plan.template)
        square = [staircases.grid(x.nan_to_num(0)).float() for x in (mean, std)]
        return Survey(
            self.source.title, answers, wins, shown, square[0], square[1], points, share, spelled, ablated, record
        )

    def _axes(self, spelled: Tensor) -> tuple[Tensor, Tensor]:
        """The leading axes of each stream, over the prompts whose digit there is right; the others stay NaN."""
        size, total = self.source.size, self.pairs.sum(1)
        points = torch.full((size.layers, 2, OUTPUTS, len(total), AXES), float("nan"))
        share = torch.full((size.layers, 2, OUTPUTS, AXES), float("nan"))
        with ExitStack() as stack:
            files = [stack.enter_context(safe_open(self._path(f"intact-{i:04d}"), "pt")) for i in range(self.n_batches)]
            streams = [file.get_slice(STREAM) for file in files]
            for output, layer, after in product(range(OUTPUTS), range(size.layers), range(2)):
                there = spelled[:, output]
                digit, arrives = label(self.pairs, output)
                if int(there.sum()) > AXES:
                    x = torch.cat([stream[output, layer, after] for stream in streams])[there].float()
                    found, shares = principal_axes(x, [arrives[there], digit[there]])
                    points[layer, after, output, there] = found
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


def _read_part(path: Path) -> Part | None:
    """A batch that was written before; None if it was not, or is damaged and has to be measured again."""
    try:
        with safe_open(path, "pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys() if key != STREAM}  # noqa: SIM118 (not a dict)
            return tensors, json.loads(file.metadata()["replies"])
    except (SafetensorError, OSError, KeyError, TypeError, ValueError):
        return None
