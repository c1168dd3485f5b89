"""`carry llm` and `carry train-llm`; what they run is imported only then."""

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

from carry_core.errors import BadInput
from carry_core.files import check_writable, data_dir
from carry_core.llm.model import DTYPES, MOST_PAIRS, check_device, inspect_model, library, parse_heads
from carry_core.llm.prompts import TEMPLATES


class PathOption(click.Path):
    """A path, as a `Path`; not an empty one, which would be the current folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("an empty path, expected one that names something.", param, ctx)
        return super().convert(value, param, ctx)


PATH = PathOption()
QUIET_EVERY = 60.0  # seconds between progress lines where the output is not a terminal


@click.command("llm", short_help="Ask a language model sums and look inside (Tab. 2, Fig. 6).")
@click.argument("model")
@click.option("--prompts", "count", type=click.IntRange(10, 100_000), default=1000, show_default=True)
@click.option(
    "--ablate",
    metavar="HEADS",
    multiple=True,
    help="Heads to ablate together, such as 13:23,15:15 (layer:head); may be given again."
    " Without it: the three pairs that win most often.",
)
@click.option("--pairs", type=click.IntRange(0, MOST_PAIRS), help="How many pairs of frequent winners to ablate.")
@click.option("--template", type=click.Choice(list(TEMPLATES)), default="bare", show_default=True)
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1, …")
@click.option("--dtype", type=click.Choice(list(DTYPES)), help="[default: as the model has it]")
@click.option("--batch", type=click.IntRange(1, 10_000), default=25, show_default=True, help="Prompts at a time.")
@click.option(
    "--seed", type=click.IntRange(0, 2**63 - 1), default=42, show_default=True, help="Of prompts and random pairs."
)
@click.option("--out", type=PATH, help="Where to write [default: data/llm/NAME].")
def llm(count: int, ablate: tuple[str, ...], model: str, out: Path | None, **options: Any) -> None:
    """Ask a language model four-digit sums and look inside: Tab. 2 and Fig. 6.

    MODEL is a folder in the format of transformers, or an id on the Hugging Face hub. A survey that was stopped goes on
    where it was. Every set of heads is compared with a random pair of others.
    """
    library()
    from carry_core.llm import survey

    template, device = TEMPLATES[options["template"]], options["device"]
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    source = inspect_model(model, template, device, options["dtype"])
    asked = tuple(parse_heads(text, source.size) for text in ablate)
    out = out or data_dir() / "llm" / source.title
    if (out / "config.json").exists():
        raise BadInput(f"{out} holds a model: expected another folder for its survey, so pass --out.")
    check_writable(out)
    plan = survey.Plan(template, count, options["seed"], options["batch"], asked, options["pairs"])
    with _reporting(source.title) as report:
        surveyor = survey.Surveyor(source, plan, data_dir() / "checkpoints" / "llm", report)
        result = surveyor.run()
    result.save(out / survey.FILE)
    for line in result.lines():
        click.echo(line)
    click.echo(
        f"Written to {out / survey.FILE}. Its batches stay in {surveyor.parts}: more heads can be ablated without"
        " asking again."
    )


@click.command("train-llm", short_help="Train the small language model, in ten minutes.")
@click.option("--out", type=PATH, help="Where to write the model [default: data/llm/small].")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, …")
@click.option("--threads", type=click.IntRange(1, 1024), default=1, show_default=True, help="CPU threads.")
def train_llm(out: Path | None, device: str, threads: int) -> None:
    """Train the small language model from scratch, in ten minutes on a CPU core."""
    library()
    check_device(device)
    from carry_core.llm import small

    torch.set_num_threads(threads)
    out = out or data_dir() / "llm" / "small"
    check_writable(out)
    with _reporting("small") as report:

        def tell(row: dict[str, Any]) -> None:
            report(f"loss {row['loss']:.1e}, accuracy {row['accuracy']:.3f}", row["step"] / small.RECIPE.steps)

        names = small.publish(small.train(small.RECIPE, device, tell), out)
    click.echo(f"Written to {out}: {', '.join(names)}.")


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
