"""Commands that train groups of runs, and that measure speed."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path

import click
import pandas as pd
import torch
from click.core import ParameterSource

from carry_core import groups
from carry_core.errors import BadInput
from carry_core.files import data_dir, write_json
from carry_core.runs import run_path
from carry_paper.cli.options import (
    DEVICE,
    FOLDER,
    JSON,
    SAVE,
    SEED,
    THREADS,
    Number,
    Whole,
    check_writable,
)
from carry_paper.cli.progress import counted, reporter
from carry_paper.training import bench, estimates, fused, growth, loop
from carry_paper.training.checkpoints import Checkpoints
from carry_paper.training.loop import Progress
from carry_paper.training.seeds import Seeds

# For each group its checkpoints, and how far each run is that is not yet trained to its end.
Plan = list[tuple[Checkpoints, dict[int, Progress]]]
Precisions = dict[str, str]  # of each group, by its name
PRECISIONS_IN_WORDS = {"fused": "fused (bf16 in C++)", "triton": "triton (bf16 in Triton)"}
# Options that shorten a training.
SHORTER = {
    "--runs 0": "one run",
    "--recipe quick": "fewer epochs",
    "--precision auto": "the fastest one here",
}


@click.command(
    epilog=f"The paper's groups, the most needed ones first: {', '.join(groups.GROUPS)}."
    f" Any other group is named by {groups.FORM}, such as n2_s0.4_w0.5_dff256_h4."
)
@click.argument("names", metavar="GROUP...", nargs=-1)
@click.option(
    "--all", "all_groups", is_flag=True, help="Train every group, the most needed ones first."
)
@click.option("--runs", "numbers", help="Runs such as 0-5 or 0,2 [default: the group's own].")
@click.option(
    "--epochs", type=Whole(min=1), help="Stop after this many epochs [default: the recipe's]."
)
@click.option(
    "--recipe",
    type=click.Choice(list(groups.RECIPES)),
    default="paper",
    help="The paper's protocol, hours to days per run on a CPU core; or a quick stand-in,"
    " 5 to 20 minutes per run.",
)
@DEVICE
@click.option(
    "--precision",
    type=click.Choice([*loop.PRECISIONS, loop.AUTO]),
    default="fp32",
    help="fused: bf16 in C++, on CPUs with AVX512-bf16. triton: bf16 in Triton, on a GPU."
    " auto: the fastest one here.",
)
@THREADS
@click.option(
    "--out",
    type=FOLDER,
    default=lambda: data_dir() / "runs",
    show_default="data/runs",
    help="Output folder.",
)
@click.option("--init-seed", type=SEED, help="Use initial weights of this run [default: its own].")
@click.option("--order-seed", type=SEED, help="Permute the training sums [default: unpermuted].")
@click.option("--mask-seed", type=SEED, help="Use dropout masks of this run [default: its own].")
@click.option(
    "--switch-precision",
    "switch",
    is_flag=True,
    help="Go on from checkpoints of another precision, with other masks and rounding.",
)
@click.option(
    "--minutes", type=Number(0, 1e6, min_open=True), help="Stop, resumable, after this time."
)
@click.option(
    "--dry-run", is_flag=True, help="Only say what would be trained, and about how long it takes."
)
def train(
    names: tuple[str, ...],
    all_groups: bool,
    numbers: str | None,
    epochs: int | None,
    recipe: str,
    device: str,
    precision: str,
    threads: int,
    out: Path,
    init_seed: int | None,
    order_seed: int | None,
    mask_seed: int | None,
    switch: bool,
    minutes: float | None,
    dry_run: bool,
) -> None:
    """Train the missing runs of each GROUP, resuming where an earlier call stopped."""
    clock = loop.Clock(minutes)
    seeds = Seeds(init_seed, order_seed, mask_seed)
    if all_groups == bool(names):
        raise BadInput("What to train? Expected either one or more groups, or --all.")
    check_precision(precision, device)
    torch.set_num_threads(threads)

    plan: Plan = []
    precisions: Precisions = {}
    for checkpoints in writable_checkpoints(groups.GROUPS if all_groups else names, recipe, epochs):
        precisions[checkpoints.group.name] = group_precision(checkpoints.group, precision, device)
        check_writable(run_path(out, checkpoints.group.name, recipe, 0).parent)
        estimates.check_memory(checkpoints.group, device)
        run_numbers = loop.parse_run_numbers(numbers, checkpoints.group)
        plan.append((checkpoints, loop.missing(checkpoints, run_numbers, out, seeds)))
    loop.check_parents(plan)
    warn_if_emulated(precision, device)

    # A GPU would first compile the kernels of every group, and takes minutes for all runs of one.
    print_plan(plan, out, device, precisions, is_timed=dry_run or device == "cpu")
    if dry_run:
        return
    for checkpoints, missing in plan:
        group = checkpoints.group
        if not missing:
            continue
        conditions = loop.Conditions(device, precisions[group.name], seeds, switch)
        in_time = loop.train_group(checkpoints, missing, out, conditions, clock, reporter())
        if not in_time:
            click.echo("Time is up; the same command goes on from here.")
            return


def check_precision(precision: str, device: str) -> None:
    """Raise `BadInput` if this machine cannot train on the device in this precision."""
    if precision in ("tf32", "triton") and device == "cpu":
        raise BadInput(f"--precision {precision} exists on CUDA devices only: choose fp32 or auto.")
    if precision == "fused":
        fused.library()  # builds it now, or raises if that is impossible


def warn_if_emulated(precision: str, device: str) -> None:
    """Say so on the error stream if this processor has to emulate the precision."""
    if precision == "bf16" and device == "cpu" and fused.bf16_instructions() is False:
        click.echo(
            "--precision bf16: this processor has no instructions for it, so that a step takes"
            " several times as long as in fp32; --precision auto is the fastest one.",
            err=True,
        )


def group_precision(group: groups.Group, precision: str, device: str) -> str:
    """Return the precision of a group's training: the fastest one for `auto`.

    Raises:
        BadInput: No run of the group can be trained in the precision.
    """
    if precision == loop.AUTO:
        return loop.fastest_precision(group, device)
    loop.trainer_class(precision).check_group(group, precision)
    return precision


def writable_checkpoints(
    names: Iterable[str], recipe: str, epochs: int | None
) -> Iterable[Checkpoints]:
    """Yield the checkpoints of each group, in a folder that can be written to.

    Raises:
        BadInput: There is no such group, its training has fewer epochs, or the folder is not
            writable.
    """
    folder = data_dir() / "checkpoints"
    check_writable(folder)
    for name in names:
        group = groups.find(name)
        checkpoints = Checkpoints(folder, group, groups.find_recipe(recipe, group, epochs))
        check_writable(checkpoints.path(0).parent)
        yield checkpoints


def print_plan(plan: Plan, out: Path, device: str, precisions: Precisions, is_timed: bool) -> None:
    """Print the missing runs and about how long they take, for each group and in all."""
    total = timedelta()
    for checkpoints, missing in plan:
        group = checkpoints.group
        if not missing:
            click.echo(f"{group.name}: complete in {out}.")
            continue
        precision = precisions[group.name]
        about = ""
        if is_timed:
            seconds = estimates.seconds_left(checkpoints, missing, device, precision)
            duration = timedelta(seconds=round(seconds))
            total += duration
            about = f"about {duration} "
        epochs = counted(checkpoints.recipe.epochs(group), "epoch")
        click.echo(
            f"{group.name}: {group}; {loop.runs_in_words(missing)}, {epochs} a run,"
            f" {about}in {PRECISIONS_IN_WORDS.get(precision, precision)}."
        )
    n_runs = [len(missing) for _, missing in plan]
    if is_timed and any(n_runs):
        advice = shorter(max(n_runs))
        click.echo(f"In all about {total} on {device}, estimated from two steps.{advice}")


def shorter(n_runs: int) -> str:
    """Return a sentence with options that would shorten a training of so many runs of a group."""
    context = click.get_current_context()
    unused = []
    for words, meaning in SHORTER.items():
        option = words.split()[0]
        (name,) = [p.name for p in context.command.params if option in p.opts]
        was_given = context.get_parameter_source(str(name)) is not ParameterSource.DEFAULT
        if not was_given and (n_runs > 1 or option != "--runs"):
            unused.append(f"{words} ({meaning})")
    return f" Shorter: {', '.join(unused)}." if unused else ""


@click.command("bench")
@click.argument("what", type=click.Choice(["train", "claims", "measure", "growth"]))
@JSON
@SAVE
def bench_command(what: str, json_file: Path | None, save: bool) -> None:
    """Compare the speed of training, of the ledger or of measurements with plain PyTorch.

    Measurements are compared with TransformerLens, too, where it is installed. With growth, see
    how the costs of measuring and of training grow with the size of models and their number.
    """
    has_gpu = torch.cuda.is_available()
    if save and what == "train" and not has_gpu:
        bench.check_devices(what, {"cpu"})
    benches: dict[str, Callable[[], list[bench.Row]]] = {
        "train": bench.train,
        "claims": bench.claims,
        "measure": bench.measurements,
        "growth": lambda: growth.growth(growth.points()),
    }
    rows = benches[what]()
    if what == "train" and has_gpu:
        rows += bench.train("cuda", [groups.find(groups.MAIN)], 6)
    click.echo(pd.DataFrame(rows).to_string(index=False, na_rep=""))
    if what == "train" and (reason := fused.why_not()):
        click.echo(reason)
    if save:
        bench.save(what, rows)
    if json_file is not None:
        write_json(json_file, rows)
