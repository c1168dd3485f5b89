"""`carry llm` and `carry train-llm`. What they run is imported only then: `transformers` takes seconds to import."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from carry_core.files import check_writable, data_dir, update_manifest
from carry_core.options import PATH

QUIET_EVERY = 60.0  # seconds between progress lines where the output is not a terminal


@click.command("llm", short_help="Ask a language model sums and look inside (Tab. 2, Fig. 6).")
@click.argument("model")
@click.option("--prompts", "count", type=click.IntRange(min=10, max=100_000), default=1000, show_default=True)
@click.option(
    "--ablate", metavar="HEADS", multiple=True,
    help="Heads to take out together, such as 13:23,15:15 (layer:head); may be given again."
    " Without it: the three pairs that win most often.",
)  # fmt: skip
@click.option("--pairs", type=click.IntRange(min=0), help="How many pairs of frequent winners to take out.")
@click.option("--template", type=click.Choice(["bare", "alpaca"]), default="bare", show_default=True)
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1, …")
@click.option("--dtype", type=click.Choice(["float32", "bfloat16", "float16"]), help="[default: as the model has it]")
@click.option("--batch", type=click.IntRange(min=1), default=25, show_default=True, help="Prompts at a time.")
@click.option("--seed", type=click.IntRange(min=0), default=42, show_default=True, help="Of prompts and random pairs.")
@click.option("--out", type=PATH, help="Where to write [default: data/llm/NAME].")
def llm(
    model: str, count: int, ablate: tuple[str, ...], pairs: int | None, template: str, device: str, dtype: str | None,
    batch: int, seed: int, out: Path | None,
) -> None:  # fmt: skip
    """Ask a language model four-digit sums and look inside: Tab. 2 and Fig. 6.

    MODEL is a folder in the format of transformers, or an id on the Hugging Face hub. A survey that was stopped goes on
    where it was. Every set of heads is compared with a random pair of others.
    """
    from carry_core.llm import heads, loading, prompts, survey, surveyor

    chosen = prompts.template(template)
    device = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    source = loading.find(model, chosen, device, dtype, batch, [*ablate])
    asked = tuple(heads.parse(text, source.size) for text in ablate)
    out = out or data_dir() / "llm" / source.title
    check_writable(out)
    plan = surveyor.Plan(chosen, count, seed, batch, asked, pairs)
    with _reporting(source.title) as report:
        work = surveyor.Surveyor(source, plan, data_dir() / "checkpoints" / "llm", report)
        found = work.run()
    path = out / survey.FILE
    found.save(path)
    _record([path])
    for line in found.lines():
        click.echo(line)
    click.echo(f"Written to {path}. Its batches stay in {work.parts}: more heads can be ablated without asking again.")


@click.command("train-llm", short_help="Train the small language model, in half an hour.")
@click.option("--out", type=PATH, help="Where to write the model [default: data/llm/small].")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, …")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="CPU threads.")
def train_llm(out: Path | None, device: str, threads: int) -> None:
    """Train the small language model from scratch, in half an hour; goes on where an earlier call stopped."""
    from carry_core.llm import small

    torch.set_num_threads(threads)
    out = out or data_dir() / "llm" / "small"
    with _reporting("small") as report:

        def tell(trainer: small.Trainer) -> None:
            row = trainer.history[-1]
            what = f"{trainer.recipe.name}: loss {row['loss']:.1e}, accuracy {row['accuracy']:.3f}"
            report(what, trainer.step / trainer.recipe.steps)

        names = small.climb(out, data_dir() / "checkpoints" / "llm", device, tell)
    _record([out / name for name in names])
    click.echo(f"Written to {out}: {', '.join(names)}.")


def _record(paths: list[Path]) -> None:
    """List files in the manifest, where they lie in the data folder."""
    root = data_dir().resolve()
    inside = [path.resolve().relative_to(root).as_posix() for path in paths if path.resolve().is_relative_to(root)]
    if inside:
        update_manifest(data_dir(), inside)


@contextmanager
def _reporting(title: str) -> Iterator[Callable[[str, float], None]]:
    """A progress bar on a terminal, else a line now and then."""
    if not sys.stderr.isatty():
        last = time.monotonic()

        def quiet(what: str, share: float) -> None:
            nonlocal last
            if time.monotonic() - last > QUIET_EVERY:
                last = time.monotonic()
                click.echo(f"{title}: {share:.0%}, {what}", err=True)

        yield quiet
        return
    columns: list[Any] = [TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.0f}%")]
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=1.0)
        yield lambda what, share: progress.update(task, completed=share, description=f"{title}: {what}")
