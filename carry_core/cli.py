"""The `carry` command: its options, checks of what was typed, progress. What it does is in the package's rooms."""

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import click
import pandas as pd
import torch

from carry_core import author, groups, runs
from carry_core.errors import BadInput
from carry_core.files import author_dir, data_dir, replacing, sha256, write_json
from carry_core.findings import interchange, typology
from carry_core.ledger import compute, results, seeds
from carry_core.ledger.report import show
from carry_core.llm import survey
from carry_core.llm.model import DTYPES, MOST_PAIRS, inspect_model, library, parse_heads
from carry_core.llm.prompts import TEMPLATES
from carry_core.training import bench, fused, loop, recipes
from carry_core.training.checkpoints import Checkpoints
from carry_core.training.layers import keep_memory
from carry_core.training.trainer import PRECISIONS

SUMS = "SHA256SUMS"
SHOWN_EVERY, QUIET_EVERY = 5.0, 300.0  # seconds between lines of progress, on a terminal and elsewhere


class Target(click.Path):
    """A file or folder to write, refused before anything long starts where nothing can be written."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if value == "":  # the current folder, for `Path`
            self.fail("an empty path, expected one that names something.", param, ctx)
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if self.file_okay and path.exists() and not path.is_file():  # a device would be replaced
            self.fail(f"{path} is no regular file, expected one, or a new name.", param, ctx)
        check_writable(path if self.dir_okay else path.parent)
        return path


def check_writable(folder: Path) -> None:
    """Raise `BadInput`, before anything long starts, if no files can be written to a folder, which need not exist."""
    place = next(path for path in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(path))
    if not (place.is_dir() and os.access(place, os.W_OK | os.X_OK)):
        raise BadInput(f"Cannot write to {folder}: {place} is no folder that can be written to. Choose another.")


def _device(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """A device that PyTorch has; `auto` is the GPU if there is one."""
    device = ("cuda" if torch.cuda.is_available() else "cpu") if value == "auto" else value
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise BadInput(f"Unknown device {device!r}: expected cpu, cuda or cuda:1.")
    if device != "cpu" and (torch.device(device).index or 0) >= torch.cuda.device_count():
        raise BadInput(f"Device {device}: PyTorch finds {torch.cuda.device_count()} CUDA devices here; expected cpu.")
    return device


def _save(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    """Whether to save; refused before anything is computed where nothing can be written."""
    if value:
        check_writable(data_dir() / "results")
    return value


DEVICE = click.option("--device", default="auto", callback=_device, help="auto, cpu, cuda, cuda:1, …")
FOLDER = Target(file_okay=False)
JSON = click.option("--json", "file", type=Target(dir_okay=False), help="Also write the rows there, as a list.")
SAVE = click.option("--save", is_flag=True, callback=_save, help="Also write them to data/results, for the book.")
SOURCE = click.option("--source", type=click.Choice(runs.SOURCES), required=True, help="Whose weights.")
THREADS = click.option("--threads", type=click.IntRange(1, 1024), default=1, help="CPU threads: last bits depend on it")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(package_name="carry-core")
def carry() -> None:
    """A reproducible companion to *Carrying over Algorithm in Transformers*."""


@carry.command("import-author")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--out", type=FOLDER, default=author_dir, show_default="data/author", help="Where to put the runs.")
def import_author(directory: Path, out: Path) -> None:
    """Convert the author's released weights in DIRECTORY, a clone of his repository."""
    report = author.import_release(directory, out)
    click.echo("\n".join(report.lines()))
    sys.exit(2 if report.damaged else 0)  # a missing file is no error


@carry.command()
@click.option("--accept", metavar="NAME", multiple=True, help="First record this file of data/ as it is now.")
def verify(accept: tuple[str, ...]) -> None:
    """Compare every shipped file in data/ with data/SHA256SUMS."""
    if accept:
        write_checksums(map(data_dir().joinpath, accept))
    root, sums = data_dir(), read_checksums()
    broken = [name for name, known in sums.items() if not (root / name).is_file() or sha256(root / name) != known]
    for name in broken:
        what = f"is damaged: restore it with git, or `carry verify --accept {name}`"
        click.echo(f"{name} {what if (root / name).is_file() else 'is missing: restore it with git'}.", err=True)
    if broken:
        sys.exit(2)
    click.echo(f"Every shipped file in {data_dir()} is as {SUMS} says.")


@carry.command(epilog=f"Groups, what figures need most first: {', '.join(groups.GROUPS)}.")
@click.argument("names", metavar="GROUP...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Every group, what figures need most first.")
@click.option("--runs", "numbers", help="Runs such as 0-5 or 0,2 [default: the group's own].")
@click.option("--epochs", type=click.IntRange(min=1), help="Stop after this many epochs [default: the recipe's].")
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
    "--out", type=FOLDER, default=lambda: data_dir() / "runs", show_default="data/runs", help="Where runs go."
)
@click.option("--minutes", type=click.FloatRange(0, 1e6, min_open=True), help="Stop, resumable, after this time.")
@click.option("--dry-run", is_flag=True, help="Say what would be trained, and about how long it would take.")
def train(names: tuple[str, ...], every: bool, numbers: str | None, out: Path, dry_run: bool, **options: Any) -> None:
    """Train the missing runs of each GROUP. Goes on where an earlier call stopped."""
    device, precision, clock = options["device"], options["precision"], loop.Clock(options["minutes"])
    train_group = partial(loop.train_group, out=out, device=device, precision=precision, clock=clock)
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
        checkpoints = Checkpoints(folder, group, recipes.chosen(options["recipe"], group, options["epochs"]))
        plan.append((checkpoints, loop.missing(checkpoints, recipes.run_numbers(numbers, group), out)))
    loop.check_parents(plan)
    total = timedelta()
    for checkpoints, missing in plan:
        name = checkpoints.group.name
        if not missing:
            click.echo(f"{name}: complete in {out}.")
        elif dry_run:
            total += (takes := timedelta(seconds=round(loop.estimate(checkpoints, missing, device, precision))))
            epochs = checkpoints.recipe.epochs(checkpoints.group)
            click.echo(f"{name}: {loop.named(missing)}, {epochs} epochs a run, about {takes}.")
        else:
            click.echo(f"{name}: {checkpoints.group}.")
            if not train_group(checkpoints, missing, report=reporter()):
                click.echo("Time is up; the same command goes on from here.")
                return
    if dry_run:
        click.echo(f"In all about {total} on {device} in {precision}, estimated from two steps of each group.")


@carry.command("bench")
@click.argument("what", type=click.Choice(["train", "claims", "measure"]))
@JSON
@SAVE
def bench_(what: str, file: Path | None, save: bool) -> None:
    """Speed of training, of the ledger or of measurements, side by side with plain PyTorch in one run."""
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
    _write(file, rows, bench.save(what, rows) if save else None)


@carry.command("export-playground")
@click.option("--out", type=FOLDER, default=Path("_build/playground"), help="Where to put them.")
def export_playground(out: Path) -> None:
    """Write a script for each run of the playground page, with weights, means, planes and probes."""
    from carry_core.plots import playground  # matplotlib takes its time

    for path in playground.export(out):
        click.echo(f"{path}: {path.stat().st_size / 1000:.0f} KB")


@carry.command("claims")
@SOURCE
@click.option("--only", default="", metavar="PREFIX", help="Rows whose id starts with this.")
@JSON
@SAVE
def claims_(source: str, only: str, file: Path | None, save: bool) -> None:
    """Every number of the paper, computed from weights and judged."""
    if save and only:
        raise BadInput("--save writes the whole ledger of a source: drop --only, or use --json.")
    keep_memory()
    done, report = count(1), reporter()
    ledger = compute.Ledger(source, only, lambda what: report(source, what, next(done) / total))
    total = 1 + ledger.steps()
    rows = ledger.rows(compute.journal(source))
    show(rows)
    _write(file, [asdict(row) for row in rows], results.save(source, rows) if save else None)
    if ledger.failed:
        click.echo(f"{len(ledger.failed)} failed unexpectedly: {', '.join(ledger.failed)}", err=True)
        sys.exit(1)


@carry.command("interchange")
@SOURCE
@click.argument("names", metavar="[GROUP...]", nargs=-1)
@click.option(
    "--pairs",
    type=click.IntRange(5, 10**6),
    show_default=f"{interchange.PAIRS} in {groups.MAIN}, {interchange.PAIRS_OF_OTHERS} in other groups",
    help="Swaps of a part at an answer position; a fifth of them elsewhere.",
)
@JSON
@SAVE
def interchange_(source: str, names: tuple[str, ...], pairs: int | None, file: Path | None, save: bool) -> None:
    """Where the carry lives: swaps between two sums, component by component, in all runs of each GROUP.

    Without a GROUP, of every group that there are runs of.
    """
    asked = [groups.find(name).name for name in names]
    asked = asked or [name for name in groups.GROUPS if runs.find(name, source)] or [groups.MAIN]
    rows = []
    for name in asked:
        swaps = pairs or (interchange.PAIRS if name == groups.MAIN else interchange.PAIRS_OF_OTHERS)
        found = interchange.maps(source, name, partial(click.echo, err=True), swaps)
        shown = found[~found.control]
        rows += json.loads(shown[interchange.COLUMNS].to_json(orient="records"))
        kinds = typology.who_decides(shown).kind.map(typology.KINDS)
        click.echo(f"{name} ({source}): runs by who decides\n{kinds.value_counts().to_string(header=False)}")
        if save:
            write_checksums([interchange.save(source, name, found)])
    _write(file, rows, None)


@carry.command("seeds")
@SOURCE
@click.option("--recipe", type=click.Choice(list(groups.RECIPES)), default="quick", help="Of ours.")
@click.option("--runs", "numbers", help="Runs such as 0-31 [default: all that there are].")
@JSON
@SAVE
def seeds_(source: str, recipe: str, numbers: str | None, file: Path | None, save: bool) -> None:
    """Of which kind runs of the main group are, and which of the paper's findings each of them shows.

    Some findings compare them with runs of other groups, which have to be there too. Saved rows of other runs stay.
    """
    chosen = recipe if source == "ours" else None
    every = runs.find(groups.MAIN, source, recipe=chosen, runs=range(1000))
    asked = sorted(every) if numbers is None else recipes.run_numbers(numbers, groups.find(groups.MAIN))
    if save and seeds.path_of().exists():
        seeds.saved()  # found out now if it is damaged, and not after an hour
    rows = seeds.measured(source, chosen, asked, partial(click.echo, err=True))
    click.echo(rows[rows.epoch.isna()].kind.value_counts().to_string())
    records = json.loads(rows.to_json(orient="records", double_precision=5))
    _write(file, records, seeds.save(rows) if save else None)


@carry.command("llm", short_help="Ask a language model sums and look inside (Tab. 2, Fig. 6).")
@click.argument("model")
@click.option("--prompts", type=click.IntRange(10, 100_000), default=1000)
@click.option(
    "--ablate",
    metavar="HEADS",
    multiple=True,
    help="Heads to ablate together, such as 13:23,15:15 (layer:head); may be given again."
    " Without it: the three pairs that win most often.",
)
@click.option("--pairs", type=click.IntRange(0, MOST_PAIRS), help="How many pairs of frequent winners to ablate.")
@click.option("--template", type=click.Choice(list(TEMPLATES)), default="bare")
@DEVICE
@click.option("--dtype", type=click.Choice(list(DTYPES)), help="[default: as the model has it]")
@click.option("--batch", type=click.IntRange(1, 10_000), default=25, help="Prompts at a time.")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=42, help="Of prompts and random pairs.")
@click.option("--out", type=FOLDER, help="Where to write [default: data/llm/NAME].")
def llm(model: str, prompts: int, ablate: tuple[str, ...], out: Path | None, **options: Any) -> None:
    """Ask a language model four-digit sums and look inside: Tab. 2 and Fig. 6.

    MODEL is a folder in the format of transformers, or an id on the Hugging Face hub. A survey that was stopped goes on
    where it was. Every set of heads is compared with a random pair of others.
    """
    library()
    template = TEMPLATES[options["template"]]
    source = inspect_model(model, template, options["device"], options["dtype"])
    asked = tuple(parse_heads(text, source.size) for text in ablate)
    out = out or data_dir() / "llm" / source.title
    if (out / "config.json").exists():
        raise BadInput(f"{out} holds a model: expected another folder for its survey, so pass --out.")
    check_writable(out)
    n_pairs = (0 if asked else 3) if options["pairs"] is None else options["pairs"]
    plan = (template, prompts, options["seed"], options["batch"], asked, n_pairs)
    surveyor = survey.Surveyor(source, data_dir() / "checkpoints" / "llm", *plan, partial(reporter(), source.title))
    result = surveyor.run()
    result.save(out / survey.FILE)
    click.echo("\n".join(result.lines()))
    click.echo(f"Written to {out / survey.FILE}; its batches stay in {surveyor.folder}, for ablating more heads.")


@carry.command("train-llm")
@click.option("--out", type=FOLDER, default=lambda: data_dir() / "llm" / "small", show_default="data/llm/small")
@click.option("--device", default="cpu", callback=_device, help="cpu, cuda, …")
@THREADS
def train_llm(out: Path, device: str, threads: int) -> None:
    """Train the small language model from scratch, in ten minutes on a CPU core."""
    library()
    from carry_core.llm import small

    torch.set_num_threads(threads)
    names = small.publish(*small.train(small.RECIPE, device, partial(reporter(), "small")), out)
    click.echo(f"Written to {out}: {', '.join(names)}.")


def _write(file: Path | None, rows: list[dict[str, Any]], saved: Path | None) -> None:
    """Put what `--save` has written on the list of shipped files, and write what `--json` asks for."""
    if saved is not None:
        write_checksums([saved])
    if file is not None:
        write_json(file, rows)


def read_checksums() -> dict[str, str]:
    """The sha256 of every shipped file by its name in the data folder, as `data/SHA256SUMS` has it, or `BadInput`."""
    path = data_dir() / SUMS
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read: restore it with git, or name the data folder in CARRY_DATA.") from error


def write_checksums(files: Iterable[Path] | None = None) -> None:
    """Write `data/SHA256SUMS`, in the format of `sha256sum -c`, anew for some files or for all that are shipped.

    `BadInput` if a file is not one of those that are shipped, or the list cannot be written.
    """
    root = data_dir()
    names = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    shipped = {name for name in names if not re.match(rf"{SUMS}|checkpoints/|author/|(.*/)?\.", name)}
    sums = {} if files is None or not (root / SUMS).exists() else read_checksums()
    for name in shipped if files is None else [os.path.relpath(file, root) for file in files]:
        if name not in shipped:
            raise BadInput(f"{name}: expected the name of a file relative to {root}, and none of its checkpoints.")
        sums[name] = sha256(root / name)
    with replacing(root / SUMS) as temporary:
        temporary.write_text("".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items())), encoding="utf-8")


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
