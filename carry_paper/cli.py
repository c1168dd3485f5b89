"""The `carry` command: its options, checks of what was typed, progress. What it does is in the package's rooms."""

import json
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import click
import pandas as pd
import torch

from carry_core import groups, runs
from carry_core.errors import BadInput
from carry_core.fast.layers import keep_memory
from carry_core.files import author_dir, data_dir, restoring, sha256, write_json
from carry_core.runs import run_path
from carry_paper import author
from carry_paper.checksums import SUMS, read_checksums, write_checksums
from carry_paper.findings import interchange_maps, typology
from carry_paper.ledger import compute, moved, results, seeds
from carry_paper.ledger.report import show
from carry_paper.llm import survey
from carry_paper.llm.model import DTYPES, MOST_PAIRS, inspect_model, library, parse_heads
from carry_paper.llm.prompts import TEMPLATES
from carry_paper.training import bench, fused, loop
from carry_paper.training.checkpoints import Checkpoints
from carry_paper.training.seeds import MOST_SEED, NAMES, Seeds
from carry_paper.training.trainer import PRECISIONS

# seconds between lines of progress, on a terminal and elsewhere
SHOWN_EVERY, QUIET_EVERY = 5.0, 300.0


def check_digits(value: Any) -> None:
    """Refuse text that Python takes for a number although it has other characters: `nan`, `١`, `1_0`."""
    if isinstance(value, str) and not re.fullmatch("[-+.e0-9]+", value):
        raise click.BadParameter(f"{value!r}, expected a number in the digits 0 to 9.")


class Whole(click.IntRange):
    """A whole number within bounds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        check_digits(value)
        return super().convert(value, param, ctx)


class Number(click.FloatRange):
    """A number within bounds, never NaN."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        check_digits(value)
        return super().convert(value, param, ctx)


class Target(click.Path):
    """A file or folder to write, refused before anything long starts where nothing can be written."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if value == "":  # the current folder, for `Path`
            self.fail("an empty path, expected one that names something.", param, ctx)
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if self.dir_okay:
            check_writable(path)
            return path
        check_writable(path.parent, path.name)
        if path.exists() and not path.is_file():  # a device would be replaced
            self.fail(f"{path} is no regular file, expected one, or a new name.", param, ctx)
        return path


def check_writable(folder: Path, file: str = "") -> None:
    """Raise `BadInput`, before anything long starts, unless a file can be made in a folder.

    The folder need not exist. `file` is the name, which has to leave room for that of a temporary
    file.
    """
    path = folder.absolute()
    place = next(part for part in (path, *path.parents) if os.path.lexists(part))
    temporary_name = f".{file}.12345678"
    try:
        tempfile.TemporaryFile(dir=place).close()
        for name in (*path.relative_to(place).parts, temporary_name, str(path / file)):
            with suppress(FileNotFoundError):
                os.lstat(place / name)  # raises where a name, or the whole path, is too long
    except OSError as error:
        why = f"{error.strerror} ({place})"
        raise BadInput(f"Cannot write to {folder / file}: {why}. Choose another place.") from error


def counted(n: int, noun: str) -> str:
    """A number and its noun: `1 epoch`, `2 epochs`."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _device(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """A device that PyTorch has; `auto` is the GPU if there is one."""
    n_devices = torch.cuda.device_count()
    device = ("cuda" if torch.cuda.is_available() else "cpu") if value == "auto" else value
    if not re.fullmatch(r"cpu|cuda(:[0-9]{1,3})?", device):
        raise BadInput(f"Unknown device {device!r}: expected cpu, cuda or cuda:1.")
    if device != "cpu" and (torch.device(device).index or 0) >= n_devices:
        has = counted(n_devices, "CUDA device")
        raise BadInput(f"Device {device}: PyTorch finds {has} here; expected cpu.")
    return device


def _save(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    """Whether to save; refused before anything is computed where nothing can be written."""
    if value:
        results_dir = data_dir() / "results"
        check_writable(data_dir(), SUMS)
        for folder in (results_dir, *filter(Path.is_dir, results_dir.rglob("*"))):
            check_writable(folder)
    return value


DEVICE = click.option(
    "--device", default="auto", callback=_device, help="auto, cpu, cuda, cuda:1, …"
)
FOLDER = Target(file_okay=False)
SEED = Whole(0, MOST_SEED)
JSON = click.option(
    "--json",
    "file",
    type=Target(dir_okay=False, writable=True),
    help="Also write the rows there, as a list.",
)
SAVE = click.option(
    "--save", is_flag=True, callback=_save, help="Also write them to data/results, for the book."
)
SOURCE = click.option(
    "--source", type=click.Choice(runs.SOURCES), required=True, help="Whose weights."
)
THREADS = click.option(
    "--threads", type=Whole(1, 1024), default=1, help="CPU threads: last bits depend on it"
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(package_name="carry-core")
def carry() -> None:
    """A reproducible companion to *Carrying over Algorithm in Transformers*."""


@carry.command("import-author")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=FOLDER,
    default=author_dir,
    show_default="data/author",
    help="Where to put the runs.",
)
def import_author(directory: Path, out: Path) -> None:
    """Convert the author's released weights in DIRECTORY, a clone of his repository."""
    report = author.import_release(directory, out)
    click.echo("\n".join(report.lines()))
    sys.exit(2 if report.damaged else 0)  # a missing file is no error


@carry.command()
@click.option(
    "--accept", metavar="NAME", multiple=True, help="First record this file of data/ as it is now."
)
def verify(accept: tuple[str, ...]) -> None:
    """Compare every shipped file in data/ with data/SHA256SUMS."""
    if accept:
        write_checksums(map(data_dir().joinpath, accept))
    root, sums = data_dir(), read_checksums()
    broken = [
        name
        for name, known in sums.items()
        if not (root / name).is_file() or sha256(root / name) != known
    ]
    for name in broken:
        if (root / name).is_file():
            remedy = f"is damaged: {restoring(root / name, 'get it again')}, or `carry verify --accept {name}`"
        else:
            remedy = f"is missing: {restoring(root / name, 'get it again')}"
        click.echo(f"{name} {remedy}.", err=True)
    if broken:
        sys.exit(2)
    click.echo(f"Every shipped file in {data_dir()} is as {SUMS} says.")


@carry.command(epilog=f"Groups, what figures need most first: {', '.join(groups.GROUPS)}.")
@click.argument("names", metavar="GROUP...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Every group, what figures need most first.")
@click.option("--runs", "numbers", help="Runs such as 0-5 or 0,2 [default: the group's own].")
@click.option(
    "--epochs", type=Whole(min=1), help="Stop after this many epochs [default: the recipe's]."
)
@click.option(
    "--recipe",
    type=click.Choice(list(groups.RECIPES)),
    default="paper",
    help="The paper's protocol, hours to days a run on a CPU core; or its quick stand-in, 5 to 20 minutes.",
)
@DEVICE
@click.option("--precision", type=click.Choice(list(PRECISIONS)), default="fp32")
@THREADS
@click.option(
    "--out",
    type=FOLDER,
    default=lambda: data_dir() / "runs",
    show_default="data/runs",
    help="Where runs go.",
)
@click.option("--init-seed", type=SEED, help="Initial weights of this run [default: its own].")
@click.option("--order-seed", type=SEED, help="Permute the training sums [default: unpermuted].")
@click.option("--mask-seed", type=SEED, help="Dropout masks of this run [default: its own].")
@click.option(
    "--minutes", type=Number(0, 1e6, min_open=True), help="Stop, resumable, after this time."
)
@click.option(
    "--dry-run", is_flag=True, help="Say what would be trained, and about how long it would take."
)
def train(
    names: tuple[str, ...],
    every: bool,
    numbers: str | None,
    out: Path,
    dry_run: bool,
    **options: Any,
) -> None:
    """Train the missing runs of each GROUP. Goes on where an earlier call stopped."""
    device, precision, clock = (
        options["device"],
        options["precision"],
        loop.Clock(options["minutes"]),
    )
    seeds = Seeds(*(options[f"{name}_seed"] for name in NAMES))
    train_group = partial(loop.train_group, out=out, device=device, precision=precision)
    if every == bool(names):
        raise BadInput("What to train? Expected either one or more groups, or --all.")
    if precision == "tf32" and device == "cpu":
        raise BadInput("--precision tf32 exists on CUDA devices only: choose fp32 or bf16.")
    if precision == "fused":
        fused.library()  # refused now where it cannot be had
    torch.set_num_threads(options["threads"])
    folder = data_dir() / "checkpoints"
    check_writable(folder)
    plan = []
    for group in map(groups.find, groups.GROUPS if every else names):
        checkpoints = Checkpoints(
            folder, group, groups.find_recipe(options["recipe"], group, options["epochs"])
        )
        for path in (checkpoints.path(0), run_path(out, group.name, options["recipe"], 0)):
            check_writable(path.parent)
        wanted = loop.parse_run_numbers(numbers, group)
        plan.append((checkpoints, loop.missing(checkpoints, wanted, out, seeds)))
    loop.check_parents(plan)
    total = timedelta()
    for checkpoints, missing in plan:
        name = checkpoints.group.name
        if not missing:
            click.echo(f"{name}: complete in {out}.")
        elif dry_run:
            total += (
                takes := timedelta(
                    seconds=round(loop.estimate(checkpoints, missing, device, precision))
                )
            )
            epochs = checkpoints.recipe.epochs(checkpoints.group)
            click.echo(
                f"{name}: {loop.named(missing)}, {counted(epochs, 'epoch')} a run, about {takes}."
            )
        else:
            click.echo(f"{name}: {checkpoints.group}.")
            if not train_group(checkpoints, missing, seeds=seeds, clock=clock, report=reporter()):
                click.echo("Time is up; the same command goes on from here.")
                return
    if dry_run:
        click.echo(
            f"In all about {total} on {device} in {precision}, estimated from two steps of each group."
        )


@carry.command("bench")
@click.argument("what", type=click.Choice(["train", "claims", "measure"]))
@JSON
@SAVE
def bench_(what: str, file: Path | None, save: bool) -> None:
    """Speed of training, of the ledger or of measurements, side by side with plain PyTorch in one run."""
    if save and what == "train" and not torch.cuda.is_available():
        bench.check_devices(what, {"cpu"})
    benches: dict[str, Callable[[], list[bench.Row]]] = {
        "train": bench.train,
        "claims": bench.claims,
        "measure": bench.predict,
    }
    rows = benches[what]()
    if what == "train" and torch.cuda.is_available():
        rows += bench.train("cuda", [groups.find(groups.MAIN)], 6)
    click.echo(pd.DataFrame(rows).to_string(index=False, na_rep=""))
    if what == "train" and (why := fused.why_not()):
        click.echo(why)
    if save:
        bench.save(what, rows)
    if file is not None:
        write_json(file, rows)


@carry.command("export-playground")
@click.option("--out", type=FOLDER, default=Path("_build/playground"), help="Where to put them.")
def export_playground(out: Path) -> None:
    """Write a script for each run of the playground page, with weights, means, planes and probes."""
    from carry_paper.pages import playground  # matplotlib takes its time

    for path in playground.export(out):
        click.echo(f"{path}: {path.stat().st_size / 1000:.0f} KB")


@carry.command("claims")
@SOURCE
@click.option("--only", default="", metavar="PREFIX", help="Rows whose id starts with this.")
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Then list the rows that moved since FILE, which --json or --save wrote earlier, with both rules.",
)
@JSON
@SAVE
def claims_(source: str, only: str, against: Path | None, file: Path | None, save: bool) -> None:
    """Every number of the paper, computed from weights and judged."""
    if save and only:
        raise BadInput("--save writes the whole ledger of a source: drop --only, or use --json.")
    earlier = moved.earlier_rows(against, source, only) if against else None
    if save:
        results.check_weights(source)
    keep_memory()
    done, report = count(1), reporter()
    ledger = compute.Ledger(source, only, lambda what: report(source, what, next(done) / total))
    total = 1 + ledger.steps()
    rows = ledger.rows(compute.journal(source))
    show(rows)
    if save:
        results.save(source, rows)
    if file is not None:
        write_json(file, [asdict(row) for row in rows])
    if earlier is not None:
        lines = moved.moved(earlier, {row.id: row for row in rows})
        click.echo("\n".join([f"{len(lines)} of {len(rows)} rows moved since {against}.", *lines]))
    if ledger.failed:
        click.echo(
            f"{len(ledger.failed)} failed unexpectedly: {', '.join(ledger.failed)}", err=True
        )
        sys.exit(1)


@carry.command("interchange")
@SOURCE
@click.argument("names", metavar="[GROUP...]", nargs=-1)
@click.option(
    "--pairs",
    type=Whole(5, 10**6),
    show_default=f"{interchange_maps.PAIRS} in {groups.MAIN}, "
    f"{interchange_maps.PAIRS_OF_OTHERS} in other groups",
    help="Swaps of a part at an answer position; a fifth of them elsewhere.",
)
@JSON
@SAVE
def interchange_(
    source: str, names: tuple[str, ...], pairs: int | None, file: Path | None, save: bool
) -> None:
    """Where the carry lives: swaps between two sums, component by component, in all runs of each GROUP.

    Without a GROUP, of every group that there are runs of.
    """
    asked = [groups.find(name).name for name in names]
    asked = asked or [name for name in groups.GROUPS if runs.find(name, source)] or [groups.MAIN]
    counts = {name: pairs or interchange_maps.default_pairs(name) for name in asked}
    if save:
        for name, swaps in counts.items():
            interchange_maps.check_replaces(source, name, swaps, runs.find(name, source))
    rows = []
    for name, swaps in counts.items():
        found = interchange_maps.measure_group(source, name, partial(click.echo, err=True), swaps)
        shown = found[~found.control]
        rows += json.loads(shown[interchange_maps.COLUMNS].to_json(orient="records"))
        kinds = typology.who_decides(shown).kind.map(typology.KINDS)
        click.echo(
            f"{name} ({source}): runs by who decides\n{kinds.value_counts().to_string(header=False)}"
        )
        if save:
            interchange_maps.save(source, name, found)
    if file is not None:
        write_json(file, rows)


@carry.command("seeds")
@SOURCE
@click.option("--recipe", type=click.Choice(list(groups.RECIPES)), default="quick", help="Of ours.")
@click.option("--runs", "numbers", help="Runs such as 0-31 [default: all that there are].")
@JSON
@SAVE
def seeds_(source: str, recipe: str, numbers: str | None, file: Path | None, save: bool) -> None:
    """Of which kind runs of the main group are, and which of the paper's findings each of them shows.

    Some findings compare them with runs of other groups, which have to be there too. Saved rows of
    other runs stay.
    """
    chosen = recipe if source == "ours" else None
    every = runs.find(groups.MAIN, source, recipe=chosen, runs=range(1000))
    asked = (
        sorted(every)
        if numbers is None
        else loop.parse_run_numbers(numbers, groups.find(groups.MAIN))
    )
    if save and os.path.lexists(seeds.path_of()):
        seeds.saved()  # found out now if it is damaged, and not after an hour
    rows = seeds.measured(source, chosen, asked, partial(click.echo, err=True))
    click.echo(rows[rows.epoch.isna()].kind.value_counts().to_string())
    records = json.loads(rows.to_json(orient="records", double_precision=5))
    if save:
        seeds.save(rows)
    if file is not None:
        write_json(file, records)


@carry.command("llm", short_help="Ask a language model sums and look inside (Tab. 2, Fig. 6).")
@click.argument("model")
@click.option("--prompts", type=Whole(10, 100_000), default=1000)
@click.option(
    "--ablate",
    metavar="HEADS",
    multiple=True,
    help="Heads to ablate together, such as 13:23,15:15 (layer:head); may be given again."
    " Without it: the three pairs that win most often.",
)
@click.option(
    "--pairs", type=Whole(0, MOST_PAIRS), help="How many pairs of frequent winners to ablate."
)
@click.option("--template", type=click.Choice(list(TEMPLATES)), default="bare")
@DEVICE
@click.option("--dtype", type=click.Choice(list(DTYPES)), help="[default: as the model has it]")
@click.option("--batch", type=Whole(1, 10_000), default=25, help="Prompts at a time.")
@click.option("--seed", type=SEED, default=42, help="Of prompts and random pairs.")
@click.option("--out", type=FOLDER, help="Where to write [default: data/llm/NAME].")
def llm(
    model: str, prompts: int, ablate: tuple[str, ...], out: Path | None, **options: Any
) -> None:
    """Ask a language model four-digit sums and look inside: Tab. 2 and Fig. 6.

    MODEL is a folder in the format of transformers, or an id on the Hugging Face hub. A survey that
    was stopped goes on where it was. Every set of heads is compared with a random pair of others.
    """
    library()
    template = TEMPLATES[options["template"]]
    source = inspect_model(model, template, options["device"], options["dtype"])
    asked = tuple(parse_heads(text, source.size) for text in ablate)
    out = out or data_dir() / "llm" / source.title
    if (out / "config.json").exists():
        raise BadInput(
            f"{out} holds a model: expected another folder for its survey, so pass --out."
        )
    for folder in (out, data_dir() / "checkpoints" / "llm"):
        check_writable(folder)
    survey.check_replaces(out / survey.FILE, prompts)
    n_pairs = (0 if asked else 3) if options["pairs"] is None else options["pairs"]
    plan = (template, prompts, options["seed"], options["batch"], asked, n_pairs)
    surveyor = survey.Surveyor(
        source, data_dir() / "checkpoints" / "llm", *plan, partial(reporter(), source.title)
    )
    result = surveyor.run()
    result.save(out / survey.FILE)
    click.echo("\n".join(result.lines()))
    click.echo(
        f"Written to {out / survey.FILE}; its batches stay in {surveyor.folder}, for ablating more heads."
    )


@carry.command("train-llm")
@click.option(
    "--out",
    type=FOLDER,
    default=lambda: data_dir() / "llm" / "small",
    show_default="data/llm/small",
)
@click.option("--device", default="cpu", callback=_device, help="cpu, cuda, …")
@THREADS
def train_llm(out: Path, device: str, threads: int) -> None:
    """Train the small language model from scratch, in ten minutes on a CPU core."""
    library()
    from carry_paper.llm import small

    torch.set_num_threads(threads)
    names = small.publish(*small.train(small.RECIPE, device, partial(reporter(), "small")), out)
    click.echo(f"Written to {out}: {', '.join(names)}.")


def reporter() -> Callable[[str, str, float], None]:
    """A function that prints now and then what is done of a title, and what share of the whole that is."""
    last, every = time.monotonic(), SHOWN_EVERY if sys.stderr.isatty() else QUIET_EVERY

    def report(title: str, what: str, share: float) -> None:
        nonlocal last
        if share >= 1 or time.monotonic() - last > every:
            last = time.monotonic()
            click.echo(f"{title}: {what} ({share:.0%})", err=True)

    return report


def main() -> None:
    """Run the command line; what a user got wrong is one line on stderr and exit code 2."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        carry(standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as nothing:
        click.echo(nothing.format_message())
    except (click.ClickException, BadInput) as error:
        what = error.format_message() if isinstance(error, click.ClickException) else str(error)
        if isinstance(error, click.UsageError):
            command = error.ctx.command_path if error.ctx else "carry"
            what = f"{what.rstrip().removesuffix('.')}. Try `{command} --help`."
        click.echo(" ".join(what.split()), err=True)
        sys.exit(2)
    except (KeyboardInterrupt, click.Abort):
        kept = "; what was finished is kept, and the same command goes on from there"
        click.echo(f"Stopped{kept if 'train' in sys.argv[1:2] else ''}.", err=True)
        os._exit(130)  # without waiting for threads that are in the middle of a pass
