"""Commands that look into language models (Sec. 6), and that train a small one."""

from functools import partial
from pathlib import Path

import click
import torch

from carry_core.errors import BadInput
from carry_core.files import data_dir
from carry_paper.cli.options import DEVICE, FOLDER, SEED, check_writable, pick_device
from carry_paper.cli.progress import reporter
from carry_paper.llm import head_survey
from carry_paper.llm.model import DTYPES, MOST_PAIRS, inspect_model, library, parse_heads
from carry_paper.llm.prompts import TEMPLATES

DEFAULT_PAIRS = 3  # of heads that win most often, ablated where no heads are named


@click.command("llm", short_help="Survey a language model on sums (Tab. 2, Fig. 6).")
@click.argument("model")
@click.option("--prompts", type=click.IntRange(10, 100_000), default=1000)
@click.option(
    "--ablate",
    metavar="HEADS",
    multiple=True,
    help="Heads to ablate together, such as 13:23,15:15 (layer:head); can be repeated."
    " [default: the three pairs that win most often]",
)
@click.option(
    "--pairs",
    type=click.IntRange(0, MOST_PAIRS),
    help="Number of pairs of frequent winners to ablate.",
)
@click.option("--template", type=click.Choice(list(TEMPLATES)), default="bare")
@DEVICE
@click.option("--dtype", type=click.Choice(list(DTYPES)), help="[default: as the model has it]")
@click.option("--batch", type=click.IntRange(1, 10_000), default=25, help="Prompts in a batch.")
@click.option("--seed", type=SEED, default=42, help="Seed of the prompts and the random pairs.")
@click.option("--out", type=FOLDER, help="Output folder [default: data/llm/NAME].")
def llm(
    model: str,
    prompts: int,
    ablate: tuple[str, ...],
    pairs: int | None,
    template: str,
    device: str,
    dtype: str | None,
    batch: int,
    seed: int,
    out: Path | None,
) -> None:
    """Survey a language model on four-digit sums, with attention and ablations (Tab. 2, Fig. 6).

    MODEL is a folder in the format of transformers, a GGUF file, or an id on the Hugging Face hub.
    A survey that was stopped resumes where it was. Each set of heads is compared with as many
    random other heads.
    """
    library()
    source = inspect_model(model, TEMPLATES[template], device, dtype)
    heads_to_ablate = tuple(parse_heads(text, source.size) for text in ablate)
    if pairs is None:
        pairs = 0 if heads_to_ablate else DEFAULT_PAIRS

    out = out or data_dir() / "llm" / source.title
    batches = data_dir() / "checkpoints" / "llm"
    if (out / "config.json").exists():
        raise BadInput(
            f"{out} holds a model: expected another folder for its survey, so pass --out."
        )
    check_writable(out)
    check_writable(batches)
    head_survey.check_replaces(out / head_survey.FILE, prompts)

    surveyor = head_survey.Surveyor(
        source,
        batches,
        template=TEMPLATES[template],
        count=prompts,
        seed=seed,
        batch=batch,
        heads_to_ablate=heads_to_ablate,
        n_pairs=pairs,
        report=partial(reporter(), source.title),
    )
    result = surveyor.run()
    result.save(out / head_survey.FILE)
    click.echo("\n".join(result.lines()))
    if too_few := head_survey.too_few_right(result.answers):
        click.echo(too_few)
    click.echo(
        f"Written to {out / head_survey.FILE}; its batches stay in {surveyor.folder},"
        " for ablating more heads."
    )


@click.command("train-llm")
@click.option(
    "--out",
    type=FOLDER,
    default=lambda: data_dir() / "llm" / "small",
    show_default="data/llm/small",
)
@click.option("--device", default="cpu", callback=pick_device, help="cpu, cuda, …")
def train_llm(out: Path, device: str) -> None:
    """Train the small language model from scratch, in ten minutes on one CPU core."""
    library()
    from carry_paper.llm import small  # imports transformers, which may not be installed

    torch.set_num_threads(1)  # the last bits depend on it
    model, record = small.train(small.RECIPE, device, partial(reporter(), "small"))
    names = small.publish(model, record, out)
    click.echo(f"Written to {out}: {', '.join(names)}.")
