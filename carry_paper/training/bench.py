"""Speed of training, measurements and the ledger beside plain PyTorch, in turns on the same machine (`carry bench`)."""

import math
import os
import platform
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from carry_core import measure, sums
from carry_core.errors import BadInput
from carry_core.fast.layers import keep_memory
from carry_core.files import data_dir, json_bytes
from carry_core.groups import RECIPES, Group
from carry_core.interventions import INTACT, Ablation
from carry_core.model import ModelConfig, Transformer, rotate
from carry_paper.checksums import save_listed
from carry_paper.schemas import read_json
from carry_paper.training.fused import cpu_info
from carry_paper.training.trainer import PRECISIONS, Trainer, commit

Row = dict[str, Any]
LAYERS = [Group(f"n{layers}", ModelConfig(layers=layers), fraction=0.01) for layers in (1, 2, 3)]


class Plain:
    """The baseline: the same model and optimiser step as an ordinary PyTorch user writes them, on one run."""

    def __init__(self, group: Group) -> None:
        self.config = group.config
        self.model = Transformer(group.config).train()
        self.optimiser = torch.optim.AdamW(
            self.model.parameters(),
            lr=1e-3,
            betas=(0.9, 0.98),
            eps=1e-8,
            weight_decay=group.decay,
            fused=True,
        )

    def logits(self, tokens: Tensor, dropout: float) -> Tensor:
        """Logits at all positions, with `scaled_dot_product_attention` and `F.dropout`."""
        heads = (self.config.heads, self.config.d_head)
        resid = self.model.embed(tokens) * math.sqrt(self.config.d_model)
        for block in self.model.blocks:
            x = block.norm(resid)
            q, k, v = (project(x).unflatten(-1, heads) for project in (block.q, block.k, block.v))
            q, k, v = (rotate(y, block.rotation).transpose(1, 2) for y in (q, k, v))
            z = F.scaled_dot_product_attention(
                q, k, v, dropout_p=dropout, is_causal=self.config.causal
            )
            resid = resid + F.dropout(block.o(z.transpose(1, 2).flatten(-2)), dropout)
            hidden = F.dropout(F.relu(block.up(block.norm(resid))), dropout)
            resid = resid + F.dropout(block.down(hidden), dropout)
        logits: Tensor = self.model.unembed(self.model.norm(resid))
        return logits

    def step(self, a: Tensor, b: Tensor) -> None:
        """One AdamW step on a batch, `[sum]` each."""
        layout = self.config.layout
        logits = self.logits(sums.encode(a, b, layout), 0.1)[:, list(layout.loss_positions)]
        loss = F.cross_entropy(logits.flatten(0, 1), sums.targets(a, b, layout).flatten())
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()


def in_turns(
    tasks: dict[str, Callable[[], Any]], rounds: int, threads: int, **clock: Any
) -> pd.DataFrame:
    """Seconds of each task, a row for each round of all, so that a slow moment of the machine meets all."""
    # not above: it warns where CUDA is installed and no device is there
    from torch.utils.benchmark import Timer

    timers = {
        name: Timer("f()", globals={"f": f}, num_threads=threads, **clock)
        for name, f in tasks.items()
    }
    return pd.DataFrame(
        [{name: timer.timeit(2).mean for name, timer in timers.items()} for _ in range(rounds)]
    )


def ratios(slow: pd.Series, fast: pd.Series) -> Row:
    """How many times faster, round by round: the median, the lowest and the highest."""
    ratio = (slow / fast).round(2)
    return {"ratio": ratio.median(), "ratio, lowest": ratio.min(), "ratio, highest": ratio.max()}


def train(
    device: str = "cpu", groups: Sequence[Group] = LAYERS, runs: int = 1, rounds: int = 5
) -> list[Row]:
    """A training step of ours, of so many runs in lockstep; on a CPU beside that of `Plain`, in processor time."""
    keep_memory()  # as in training; the baseline gains from it as well
    rows, on_cpu = [], device == "cpu"
    for group in groups:
        ours: dict[str, Trainer] = {}
        for name in PRECISIONS:
            with suppress(BadInput):  # no fused step here
                if name != "tf32" or device.startswith("cuda"):
                    ours[name] = Trainer(group, RECIPES["quick"], list(range(runs)), device, name)
        a, b = ours["fp32"].batches(ours["fp32"].train, group.batch)[0]
        tasks: dict[str, Callable[[], Any]] = {
            name: partial(of.step, a, b, 1) for name, of in ours.items()
        }
        if on_cpu:
            tasks["plain"] = partial(Plain(group).step, a[0], b[0])
        seconds = in_turns(tasks, rounds, 1, **({"timer": time.process_time} if on_cpu else {}))
        ms = (1e3 * seconds.median()).round(1)
        for name, trainer in ours.items():
            row: Row = {"device": "cpu" if on_cpu else trainer.made_by["device"], "runs": runs}
            row |= {"layers": group.config.layers, "precision": name, "ours, ms": ms[name]}
            against = (
                {"plain fp32, ms": ms["plain"]} | ratios(seconds["plain"], seconds[name])
                if on_cpu
                else {}
            )
            rows.append(row | against)
    return rows


def claims(rounds: int = 5, n_sums: int = 16_384) -> list[Row]:
    """The passes behind Table 1 (intact, both heads, final MLP) from one shared prefix, against four plain passes."""
    model = Transformer(ModelConfig()).eval()
    a, b = sums.unrank(torch.arange(n_sums), 3)
    edits = [INTACT, *measure.last_heads(model), measure.final_mlp(model)]
    batches = sums.encode(a, b, model.config.layout).split(measure.BATCH)

    @torch.inference_mode()
    def apart() -> None:
        for hook in [edit.hook(model) for edit in edits]:
            for tokens in batches:
                model(tokens, hook)

    threads = torch.get_num_threads()
    shared = partial(measure.class_accuracies, model, a, b, edits)
    seconds = in_turns({"apart": apart, "shared": shared}, rounds, threads)
    row: Row = {"passes": len(edits), "sums": n_sums, "threads": threads}
    row |= {f"{name}, s": round(median, 2) for name, median in seconds.median().items()}
    return [row | ratios(seconds["apart"], seconds["shared"])]


def predict(rounds: int = 7, n_sums: int = 16_384) -> list[Row]:
    """Compare `measure.predict` with plain passes of the model, intact and under Table 1's conditions."""
    model = Transformer(ModelConfig()).eval()
    a, b = sums.unrank(torch.arange(n_sums), 3)
    table_1 = [INTACT, *measure.last_heads(model), measure.final_mlp(model)]
    read = model.config.layout.answer
    batches = sums.encode(a, b, model.config.layout).split(measure.BATCH)

    @torch.inference_mode()
    def plain(interventions: Sequence[Ablation]) -> None:
        hooks = [intervention.hook(model, read=read) for intervention in interventions]
        for tokens in batches:
            for hook in hooks:
                model(tokens, hook, read).argmax(-1)

    rows, threads = [], torch.get_num_threads()
    for what, interventions in (("intact", [INTACT]), ("Table 1", table_1)):
        tasks: dict[str, Callable[[], Any]] = {
            "plain": partial(plain, interventions),
            "predict": partial(measure.predict, model, a, b, interventions),
        }
        seconds = in_turns(tasks, rounds, threads)
        row: Row = {"what": what, "passes": len(interventions), "sums": n_sums, "threads": threads}
        row |= {f"{name}, s": round(median, 2) for name, median in seconds.median().items()}
        rows.append(row | ratios(seconds["plain"], seconds["predict"]))
    return rows


class Benchmark(BaseModel):
    """A stored benchmark: what was measured, and with what."""

    model_config = ConfigDict(extra="forbid", strict=True)

    processor: str
    capability: str
    torch: str
    commit: str
    rows: list[dict[str, str | int | float]]


def path_of(what: str) -> Path:
    """Where a benchmark's results lie."""
    return data_dir() / "results" / f"bench_{what}.json"


def saved(what: str) -> dict[str, Any]:
    """A stored benchmark, its `rows` and what it was measured with; `BadInput` if it is missing or damaged."""
    remedy = f"delete it and write it with `carry bench {what} --save`"
    return read_json(path_of(what), Benchmark, remedy).model_dump()


def check_devices(what: str, devices: Collection[Any]) -> None:
    """Raise `BadInput` if a benchmark is stored of devices that are not among these."""
    if os.path.lexists(path_of(what)):
        lost = sorted(
            {str(row["device"]) for row in saved(what)["rows"] if "device" in row} - {*devices}
        )
        if lost:
            why = f"{path_of(what)} has rows of {', '.join(lost)}"
            raise BadInput(f"{why}, which is not here: run it there, or delete it to begin anew.")


def save(what: str, rows: list[Row]) -> Path:
    """Write a benchmark's rows and what they were measured with; returns the file."""
    check_devices(what, {row.get("device") for row in rows})
    about = {"processor": cpu_info("model name") or platform.machine()}
    about |= {
        "capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "commit": commit(),
    }
    return save_listed(path_of(what), json_bytes(about | {"rows": rows}))
