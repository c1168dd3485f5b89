"""The `carry` command."""

import errno
import math
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console
from rich.progress import Progress, TaskID
from rich.table import Table

from carry_core import author, groups, runs
from carry_core.errors import BadInput
from carry_core.files import author_dir, data_dir, replacing, sha256, write_json
from carry_core.findings import interchange, typology
from carry_core.ledger import compute, results
from carry_core.ledger.report import show
from carry_core.llm.model import DTYPES, MOST_PAIRS, check_device, inspect_model, library, parse_heads
from carry_core.llm.prompts import TEMPLATES
from carry_core.training import bench, campaign
from carry_core.training.checkpoints import Checkpoints
from carry_core.training.layers import keep_memory
from carry_core.training.trainer import PRECISIONS, Trainer

SUMS = "SHA256SUMS"
QUIET_EVERY = 300.0  # seconds between progress lines where the output is not a terminal
MOST_RUNS = 1000  # a run number more is a slip
MOST_THREADS = 1024  # likewise
THREADS = click.IntRange(min=1, max=MOST_THREADS)


class PathOption(click.Path):
    """A path, as a `Path`; not an empty one, which would be the current folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("an empty path, expected one that names something.", param, ctx)
        return super().convert(value, param, ctx)


PATH = PathOption()


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="carry-core")
def carry() -> None:
    """A reproducible companion to *Carrying over Algorithm in Transformers*."""


@carry.command("import-author", short_help="Convert the author's released weights.")
@click.argument("directory", type=PATH)
@click.option("--out", type=PATH, help="Where to put the group files [default: data/author].")
def import_author(directory: Path, out: Path | None) -> None:
    """Convert the author's released weights in DIRECTORY, a clone of his repository."""
    report = author.import_release(directory, out or author_dir())
    for line in report.lines():
        click.echo(line)
    sys.exit(2 if report.damaged else 0)  # a missing file is no error


@carry.command(short_help="Compare every shipped file with its checksum.")
@click.option("--accept", metavar="NAME", multiple=True, help="First record this file of data/ as it is now.")
def verify(accept: tuple[str, ...]) -> None:
    """Compare every shipped file in data/ with data/SHA256SUMS."""
    if accept:
        write_checksums(accept)
    problems = damaged_files()
    click.echo("\n".join(problems), err=True, nl=bool(problems))
    if problems:
        sys.exit(2)
    click.echo(f"Every shipped file in {data_dir()} is as {SUMS} says.")


@carry.command(
    short_help="Train the missing runs of groups.",
    epilog=f"Groups, what figures need most first: {', '.join(groups.GROUPS)}.",
)
@click.argument("names", metavar="GROUP...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Every group, what figures need most first.")
@click.option("--runs", "numbers", default=None, help="Runs such as 0-5 or 0,2 [default: the group's own].")
@click.option("--epochs", type=click.IntRange(min=1), help="Stop after this many epochs [default: the recipe's].")
@click.option(
    "--recipe",
    type=click.Choice(list(groups.RECIPES)),
    default="paper",
    show_default=True,
    help="The paper's protocol, in fp32 hours to days on a CPU core; or its quick stand-in, on one core 15-20 minutes"
    " a two-layer run, 5 a one-layer run. --dry-run estimates what it takes here.",
)
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option("--precision", type=click.Choice(list(PRECISIONS)), default="fp32", show_default=True)
@click.option("--threads", type=THREADS, default=1, show_default=True, help="CPU threads; last bits depend on it.")
@click.option("--out", type=PATH, help="Where to put finished runs [default: data/runs].")
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True), help="Stop, resumable, after this time.")
@click.option("--dry-run", is_flag=True, help="Say what would be trained, and about how long it would take.")
def train(
    names: tuple[str, ...],
    every: bool,
    numbers: str | None,
    epochs: int | None,
    recipe: str,
    device: str,
    precision: str,
    threads: int,
    out: Path | None,
    minutes: float | None,
    dry_run: bool,
) -> None:
    """Train the missing runs of each GROUP; goes on where an earlier call stopped."""
    if minutes is not None and not math.isfinite(minutes):
        raise BadInput(f"--minutes {minutes}: expected a number of minutes.")
    if every == bool(names):
        raise BadInput("What to train? Expected either one or more groups, or --all.")
    todo = [groups.find(name) for name in (groups.GROUPS if every else names)]
    where, out = _device(device, precision), _out(out)
    torch.set_num_threads(threads)
    clock, plan = campaign.Clock(minutes), []
    for group in todo:
        checkpoints = Checkpoints(data_dir() / "checkpoints", group, chosen_recipe(recipe, group, epochs))
        plan.append((checkpoints, campaign.missing(checkpoints, run_numbers(numbers, group), out)))
    campaign.check_parents(plan)
    if dry_run:
        _estimate(plan, where, precision)
        return
    for checkpoints, missing in plan:
        if not missing:
            click.echo(f"{checkpoints.group.name}: complete in {out}.")
            continue
        click.echo(f"{checkpoints.group.name}: {checkpoints.group}.")
        with _reporting() as report:
            finished = campaign.train_group(
                checkpoints,
                missing,
                out,
                device=where,
                precision=precision,
                clock=clock,
                report=partial(_trained, report),
                say=click.echo,
            )
        if not finished:
            click.echo("Time is up; the same command goes on from here.")
            return


def _estimate(plan: list[tuple[Checkpoints, dict[int, campaign.Progress]]], device: str, precision: str) -> None:
    """Say what is to be trained, and about how long it takes."""
    total = 0.0
    for checkpoints, missing in plan:
        group = checkpoints.group
        if missing:
            seconds = campaign.estimate(checkpoints, missing, device, precision)
            total += seconds
            epochs = f"{checkpoints.recipe.epochs(group)} epochs{' each' * (len(missing) > 1)}"
            click.echo(f"{group.name}: {_runs(list(missing))}, {epochs}, about {_time(seconds)}.")
        else:
            click.echo(f"{group.name}: complete.")
    click.echo(f"In all about {_time(total)} on {device} in {precision}, estimated from two steps of each group.")


def chosen_recipe(name: str, group: groups.Group, epochs: int | None) -> groups.Recipe:
    """The recipe, cut short; never longer than it is."""
    if group.name not in groups.GROUPS:
        raise BadInput(f"{group.name} is not in the paper, so there is no protocol to train it by.")
    recipe = groups.RECIPES[name]
    if epochs is not None and epochs > recipe.epochs(group):
        raise BadInput(
            f"--epochs {epochs}: {group.name} has {recipe.epochs(group)} by the recipe {name}; expected fewer."
        )
    return replace(recipe, limit=epochs)


def _out(out: Path | None) -> Path:
    """Where finished runs go, once it is known that they can be written there."""
    out, checkpoints = out or data_dir() / "runs", data_dir() / "checkpoints"
    try:
        resolved = out.resolve(strict=False)
    except (OSError, RuntimeError) as error:
        raise BadInput(f"--out {out}: its links lead in a circle; expected a folder.") from error
    for taken, what in ((checkpoints, "checkpoints"), (author_dir(), "the author's release")):
        if resolved.is_relative_to(taken.resolve()):
            raise BadInput(f"--out {out}: {taken} is for {what}; choose a folder outside of it.")
    for folder in (out, checkpoints):
        check_writable(folder)
    return out


@carry.command("bench", short_help="Speed beside plain PyTorch: of training, or of the ledger.")
@click.argument("what", type=click.Choice(["train", "claims"]))
@click.option("--json", "file", type=PATH, help="Also write the rows there.")
@click.option("--save", is_flag=True, help="Also write data/results/bench_WHAT.json; the book shows that of train.")
def bench_(what: str, file: Path | None, save: bool) -> None:
    """Speed of training or of the ledger, side by side with plain PyTorch in one run."""
    _check_json(file)
    if save:
        check_writable(bench.results_path(what).parent)
    rows = bench.train() if what == "train" else bench.claims()
    on_gpu = bench.train("cuda", [groups.find(groups.MAIN)], 6) if what == "train" and torch.cuda.is_available() else []
    for part in filter(None, (rows, on_gpu)):
        table = Table(*part[0])
        for row in part:
            table.add_row(*map(str, row.values()))
        Console(width=None if sys.stdout.isatty() else 180).print(table)
    if what == "train" and not on_gpu:
        click.echo("On a GPU: not measured, PyTorch finds none here.")
    if file is not None:
        write_json(file, rows + on_gpu)
    if save:
        write_checksums([bench.save(what, rows + on_gpu).relative_to(data_dir()).as_posix()])


@carry.command("export-playground", short_help="Write the runs of the playground page.")
@click.option("--out", type=PATH, default=Path("_build/playground"), show_default=True, help="Where to put them.")
@click.option("--reference", type=PATH, help="Where to put PyTorch's activations and answers, for the page's tests.")
def export_playground(out: Path, reference: Path | None) -> None:
    """Write a script for each run of the playground page, with weights, means, planes and probes."""
    from carry_core.plots import playground  # matplotlib takes its time

    for path in playground.export(out, reference):
        click.echo(f"{path}: {path.stat().st_size / 1000:.0f} KB")


@carry.command("claims", short_help="Every number of the paper, computed and judged.")
@click.option("--source", type=click.Choice(runs.SOURCES), required=True, help="Whose weights to compute from.")
@click.option("--only", default="", metavar="PREFIX", help="Rows whose id starts with this.")
@click.option("--json", "file", type=PATH, help="Also write the rows there, as a list.")
@click.option("--save", is_flag=True, help="Also write data/results/SOURCE.json, with the sha256 of the weights.")
def claims_(source: str, only: str, file: Path | None, save: bool) -> None:
    """Every number of the paper, computed from weights and judged."""
    if save and only:
        raise BadInput("--save writes the whole ledger of a source: drop --only, or use --json.")
    _check_json(file)
    if save:
        check_writable(results.path_of(source).parent)
    keep_memory()
    with _reporting() as report:
        done = count(1)
        ledger = compute.Ledger(source, only, lambda what: report(source, what, next(done) / (1 + ledger.steps())))
        rows = ledger.rows(compute.journal(source))
    show(rows)
    if file is not None:
        write_json(file, [asdict(row) for row in rows])
    if save:
        write_checksums([results.save(source, rows).relative_to(data_dir()).as_posix()])
    if ledger.failed:
        click.echo(f"{len(ledger.failed)} failed unexpectedly: {', '.join(ledger.failed)}", err=True)
        raise SystemExit(1)


@carry.command("interchange", short_help="Where the carry lives: swaps between two sums, component by component.")
@click.option("--source", type=click.Choice(runs.SOURCES), required=True, help="Whose weights to swap in.")
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@click.option("--json", "file", type=PATH, help="Also write the rows there, as a list.")
@click.option("--save", is_flag=True, help="Also write data/results/interchange/SOURCE/GROUP.json.")
def interchange_(source: str, names: tuple[str, ...], file: Path | None, save: bool) -> None:
    """Interchange-intervention accuracy of every component and position in all runs of each GROUP."""
    for name in names:
        interchange.check_group(name)
    _check_json(file)
    rows = []
    for name in names:
        found = interchange.maps(source, name, lambda done: click.echo(done, err=True))
        rows += (of_group := interchange.records(source, name, found))
        click.echo(typology.summary(of_group))
        if save:
            write_checksums([interchange.save(source, name, found).relative_to(data_dir()).as_posix()])
    if file is not None:
        interchange.write(file, rows)


@carry.command("llm", short_help="Ask a language model sums and look inside (Tab. 2, Fig. 6).")
@click.argument("model")
@click.option("--prompts", type=click.IntRange(10, 100_000), default=1000, show_default=True)
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
def llm(prompts: int, ablate: tuple[str, ...], model: str, out: Path | None, **options: Any) -> None:
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
    plan = (template, prompts, options["seed"], options["batch"], asked, options["pairs"])
    with _reporting() as report:
        say = partial(report, source.title)
        surveyor = survey.Surveyor(source, data_dir() / "checkpoints" / "llm", *plan, say)
        result = surveyor.run()
    result.save(out / survey.FILE)
    for line in result.lines():
        click.echo(line)
    click.echo(
        f"Written to {out / survey.FILE}. Its batches stay in {surveyor.folder}: more heads can be ablated without"
        " asking again."
    )


@carry.command("train-llm", short_help="Train the small language model, in ten minutes.")
@click.option("--out", type=PATH, help="Where to write the model [default: data/llm/small].")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, …")
@click.option("--threads", type=THREADS, default=1, show_default=True, help="CPU threads.")
def train_llm(out: Path | None, device: str, threads: int) -> None:
    """Train the small language model from scratch, in ten minutes on a CPU core."""
    library()
    check_device(device)
    from carry_core.llm import small

    torch.set_num_threads(threads)
    out = out or data_dir() / "llm" / "small"
    check_writable(out)
    with _reporting() as report:

        def tell(row: dict[str, Any]) -> None:
            said = f"loss {row['loss']:.1e}, accuracy {row['accuracy']:.3f}"
            report("small", said, row["step"] / small.RECIPE.steps)

        names = small.publish(*small.train(small.RECIPE, device, tell), out)
    click.echo(f"Written to {out}: {', '.join(names)}.")


def read_checksums() -> dict[str, str]:
    """The sha256 of every shipped file by its name in the data folder, as `data/SHA256SUMS` has it.

    Raises:
        BadInput: the list is missing or damaged, or names a file outside of that folder.
    """
    path = data_dir() / SUMS
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read: restore it with git, or name the data folder in CARRY_DATA.") from error
    sums = {}
    for number, line in enumerate(lines, 1):
        match = re.fullmatch(r"([0-9a-f]{64})  (.{1,255})", line)
        if not match or match[2].startswith("/") or ".." in match[2].split("/"):
            raise BadInput(f"{path}, line {number}: expected a sha256 and the name of a file in {data_dir()}.")
        sums[match[2]] = match[1]
    return sums


def write_checksums(names: Iterable[str] | None = None) -> None:
    """Write `data/SHA256SUMS`, in the format of `sha256sum -c`, anew for some files or for all that are shipped.

    Raises:
        BadInput: a name is not that of a shipped file, or the list cannot be written.
    """
    root = data_dir()
    shipped = {
        str(path.relative_to(root)): path
        for path in root.rglob("*")
        if path.is_file() and path.name != SUMS and "/." not in str(path)[len(str(root)) :]
    }
    shipped = {name: path for name, path in shipped.items() if not name.startswith(("checkpoints/", "author/"))}
    sums = {} if names is None or not (root / SUMS).exists() else read_checksums()
    for name in shipped if names is None else names:
        if name not in shipped:
            raise BadInput(f"{name}: expected the name of a file relative to {root}, and none of its checkpoints.")
        sums[name] = sha256(shipped[name])
    with replacing(root / SUMS) as temporary:
        temporary.write_text("".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items())), encoding="utf-8")


def damaged_files() -> list[str]:
    """Compare every shipped file with its checksum: a line for each that is missing or damaged."""
    problems = []
    for name, expected in read_checksums().items():
        path = data_dir() / name
        if not path.is_file():
            problems.append(f"{name} is missing: restore it with git.")
        elif sha256(path) != expected:
            problems.append(f"{name} is damaged: restore it with git, or `carry verify --accept {name}`.")
    return problems


def check_writable(folder: Path, meant: Path | None = None) -> None:
    """Find out before anything long starts whether files can be written to a folder; changes nothing.

    Args:
        folder: which one; it need not exist.
        meant: the file that is to be written there, for the message.

    Raises:
        BadInput: they cannot.
    """
    place = folder.absolute()
    while not os.path.lexists(place):
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        why = os.strerror(errno.EACCES if place.is_dir() else errno.ENOTDIR)
        raise BadInput(f"Cannot write {meant or folder}: {why}. Choose a folder that can be written to.")


def _check_json(file: Path | None) -> None:
    """Find out before anything long starts whether the file can be written."""
    if file is not None:
        if not file.parent.is_dir() or (file.exists() and not file.is_file()):
            raise BadInput(f"--json {file}: expected a file in a folder that there is.")
        check_writable(file.parent, file)


def _device(device: str, precision: str) -> str:
    if device == "cuda" and not torch.cuda.is_available():
        raise BadInput("--device cuda: PyTorch finds no CUDA device here; pass --device cpu, or install a CUDA build.")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if precision == "tf32" and device == "cpu":
        raise BadInput("--precision tf32 exists on CUDA devices only: choose fp32 or bf16.")
    return device


def run_numbers(text: str | None, group: groups.Group) -> list[int]:
    """Numbers of runs such as `0-5` or `0,2`; those of the group if None."""
    if text is None:
        return list(range(group.n_runs))
    numbers: set[int] = set()
    for part in text.split(","):
        ends = part.split("-")
        numeric = len(ends) <= 2 and all(end.isascii() and end.isdigit() for end in ends)
        if not numeric or not int(ends[0]) <= int(ends[-1]) < MOST_RUNS:
            raise BadInput(
                f"--runs {text}: expected run numbers such as 0-5 or 0,2,4, lower ones first, below {MOST_RUNS}."
            )
        numbers |= set(range(int(ends[0]), int(ends[-1]) + 1))
    return sorted(numbers)


def _runs(numbers: list[int]) -> str:
    return f"run{'s' * (len(numbers) > 1)} {','.join(map(str, numbers))}"


def _time(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds > 5400 else f"{seconds / 60:.1f} min"


@contextmanager
def _reporting() -> Iterator[Callable[[str, str, float], None]]:
    """A progress bar for each title on a terminal, else a line now and then; takes a title, what is done, its share."""
    console = Console(stderr=True)
    last, tasks = time.monotonic(), dict[str, TaskID]()
    with Progress(console=console, disable=not console.is_terminal) as progress:

        def report(title: str, what: str, share: float) -> None:
            nonlocal last
            if console.is_terminal:
                if title not in tasks:
                    tasks[title] = progress.add_task("", total=1.0)
                progress.update(tasks[title], completed=share, description=f"{title}: {what}")
            elif share >= 1 or time.monotonic() - last > QUIET_EVERY:
                last = time.monotonic()
                click.echo(f"{title}: {what}", err=True)

        yield report


def _trained(report: Callable[[str, str, float], None], trainer: Trainer, row: dict[str, Any] | None) -> None:
    """Report an epoch, or a batch within one."""
    epochs, epoch = trainer.recipe.epochs(trainer.group), trainer.epoch + (row is None)
    if row is None:
        far = f"batch {trainer.done}/{trainer.group.steps}"
    else:
        far = f"loss {row['test_loss'].mean():.1e}, accuracy {row['test_whole'].mean():.3f}"
    report(f"{trainer.group.name} {_runs(trainer.runs)}", f"{far}, epoch {epoch}/{epochs}", trainer.epoch / epochs)


def _stop(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def main(run: Callable[..., Any] = carry) -> None:
    """Run the command line; what a user got wrong is one line on stderr and exit code 2."""
    signal.signal(signal.SIGTERM, _stop)
    try:
        run(standalone_mode=False)
    except click.exceptions.Exit as exit_:
        sys.exit(exit_.exit_code)
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
        sys.stderr.flush()
        os._exit(130)  # without waiting for threads that are in the middle of a pass
