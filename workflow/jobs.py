"""Turn what is asked of `make train`, `cell` and `rerun` into targets; run a notebook again.

jobs.py run NAME GROUP SOURCE OUT       run a notebook with a group's weights; OUT says how it went
jobs.py table what=… groups=… source=…  print how the notebooks went that `make rerun` was asked for
"""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
import papermill
from papermill.exceptions import PapermillExecutionError

from carry_core import runs
from carry_core.errors import BadInput
from carry_core.files import ROOT, data_dir
from carry_paper.findings import cell_map, cells
from carry_paper.pages.standalone import fill
from carry_train import choice, groups, loop, progress, seeds
from carry_train.precisions import AUTO, EXCEPT_AUTO, REQUESTS, Request

ALL_EPOCHS = "all"  # in the name of a stamp: the run is trained to the end of its recipe
SEEDS = [f"{name}_seed" for name in seeds.NAMES]
TAKEN = {
    "train": ("groups", "runs", "recipe", "epochs", "precision", *SEEDS),
    "cell": ("group", "runs", "recipe", "new", "since", "steps", "epochs", "precision"),
    "rerun": ("what", "groups", "source"),
}


def check_taken(target: str, request: Mapping[str, str]) -> None:
    """Raise `BadInput` for a variable that a target of `make` does not take, and would ignore."""
    for name, value in request.items():
        if value and name not in TAKEN[target]:
            taken = ", ".join(TAKEN[target]).upper()
            raise BadInput(f"{name.upper()}={value}: `make {target}` takes {taken}; leave it out.")


def trainings(request: Mapping[str, str]) -> list[str]:
    """Return the stamps of the requested runs that `data/runs` lacks.

    Args:
        request: `groups` (names, or nothing for all), `runs` (as `carry train` takes them),
            `recipe`, `epochs`, `precision`, and a seed for each of `seeds.NAMES`, such as
            `init_seed`. Each may be missing or empty.

    Raises:
        BadInput: There is no such group, run, recipe, precision, number of epochs or seed, or a run
            has other seeds; or as `check_taken`.
    """
    check_taken("train", request)
    limit = parse_whole("epochs", request)
    epochs = limit or ALL_EPOCHS
    precision = requested_precision(request.get("precision") or AUTO, REQUESTS)
    by_name = {x: parse_whole(f"{x}_seed", request, 0, seeds.MOST_SEED) for x in seeds.NAMES}
    requested_seeds = seeds.Seeds(**by_name)

    stamps = []
    for name in (request.get("groups") or "").split() or groups.GROUPS:
        group = groups.find(name)
        recipe = groups.find_recipe(request.get("recipe") or "paper", group, limit)
        choice.available(precision, group, recipe, "cpu")  # built now, or refused
        requested_seeds.check_group(group)
        for run in loop.parse_run_numbers(request.get("runs") or None, group):
            path = runs.run_path(data_dir() / "runs", name, recipe.name, run)
            if progress.is_finished(path, group, recipe, requested_seeds):
                continue
            stamp = Path(f"trained/{name}/{recipe.name}/run{run}.{epochs}")
            stamp.unlink(missing_ok=True)  # it may be left from a run that was removed since
            stamps.append(str(stamp))
    return stamps


def runs_of_cell(request: Mapping[str, str]) -> list[str]:
    """Return the stamps of the runs of a cell that its table lacks.

    Args:
        request: `group`, and what `carry cell` takes, each of which may be missing or empty:
            `runs`, `recipe`, `new`, `since`, `steps`, `epochs`, `precision`.

    Raises:
        BadInput: There is no such cell, or its runs cannot be trained by this step here; or as
            `check_taken`.
    """
    check_taken("cell", request)
    name = request.get("group") or groups.MAIN
    steps, epochs, since = (parse_whole(word, request) for word in ("steps", "epochs", "since"))
    new = request.get("new") or cells.NOTHING
    recipe = request.get("recipe") or cell_map.RECIPE
    cell = cells.find_cell(name, recipe, new, steps, epochs, since)
    numbers = loop.parse_run_numbers(request.get("runs") or cells.RUNS, cell.group)
    precision = requested_precision(request.get("precision") or "fp32", EXCEPT_AUTO)
    todo = cells.missing(cell, numbers, precision)
    stamps = []
    for run in todo:
        length = f"{steps or ALL_EPOCHS}.{epochs or ALL_EPOCHS}"
        stamp = Path(f"cells/{name}/{recipe}/{new}.{cell.since}/{length}/run{run}")
        stamp.unlink(missing_ok=True)  # it may be left from a row that was removed since
        stamps.append(str(stamp))
    return stamps


def parse_whole(
    name: str, request: Mapping[str, str], least: int = 1, most: int = 999_999
) -> int | None:
    """Read a whole number, or None for an empty text; raise `BadInput` for another."""
    text = request.get(name) or ""
    if text and not (text.isdecimal() and least <= int(text) <= most):
        expected = f"expected a whole number from {least} to {most}"
        raise BadInput(f"{name.upper()}={text}: {expected}.")
    return int(text) if text else None


def requested_precision(text: str, expected: Mapping[str, Request]) -> Request:
    """Return what a precision asks for, as `carry train` or `carry cell` takes it."""
    if text not in expected:
        raise BadInput(f"PRECISION={text}: expected one of {', '.join(expected)}.")
    return expected[text]


def reruns(request: Mapping[str, str]) -> list[str]:
    """Return the file that each requested notebook leaves for each requested group.

    Args:
        request: `what` (names of notebooks or their beginnings), `groups` and `source`. Nothing
            stands for all notebooks, all groups and our runs.

    Raises:
        BadInput: There is no such notebook, group or source; or as `check_taken`.
    """
    check_taken("rerun", request)
    source = request.get("source") or "ours"
    runs.folder(source)  # refuses another source
    notebooks = []
    for start in (request.get("what") or "*").split():
        notebooks += notebooks_starting_with(start)
    names = [groups.find(name).name for name in (request.get("groups") or "").split()]
    outs = []
    for notebook in notebooks:
        for group in names or groups.GROUPS:
            outs.append(f"rerun/{source}/{group}/{notebook}.json")
    return outs


def notebooks_starting_with(start: str) -> list[str]:
    """Return the notebooks that start so, all for `*`; raise `BadInput` if there is none."""
    all_names = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
    if start == "*":
        return all_names
    names = [name for name in all_names if name.startswith(start)]
    if not names:
        expected = f"expected some of {', '.join(all_names)}"
        raise BadInput(f"WHAT={start}: no notebook begins so; {expected}.")
    return names


def run_again(name: str, group: str, source: str, out: Path) -> int:
    """Run a notebook with a group's weights, and write to `out` how it went.

    The executed copy goes beside `out`. It is filled in as by `carry fill`.

    Returns 1 if the notebook fails, but 0 if it refuses its parameters with `BadInput`: then `out`
    has the message.
    """
    began = time.monotonic()
    notebook = ROOT / "notebooks" / f"{name}.ipynb"
    parameters = {"source": source}
    if "group" in papermill.inspect_notebook(notebook):  # pages of the whole ledger have none
        parameters["group"] = group
    copy = out.with_suffix(".ipynb")
    message = ""
    try:
        papermill.execute_notebook(
            notebook,
            copy,
            parameters,
            cwd=ROOT,
            kernel_name="python3",
            progress_bar=False,
        )
        fill([copy])
    except PapermillExecutionError as error:
        message = f"{error.ename}: {error.evalue}".splitlines()[0]
        if error.ename != BadInput.__name__:
            print(message, file=sys.stderr)
            return 1
        message = message.removeprefix(f"{BadInput.__name__}: ")
    seconds = round(time.monotonic() - began)
    out.write_text(json.dumps({"seconds": seconds, "message": message}))
    return 0


def print_table(outs: Sequence[str]) -> None:
    """Print a line for each notebook and group, with the executed copy or why there is none."""
    rows = []
    for out in map(Path, outs):
        group, name = out.parent.name, out.stem
        if out.exists():
            outcome = json.loads(out.read_text())
            copy = outcome["message"] or str(out.with_suffix(".ipynb"))
            rows.append((name, group, outcome["seconds"], copy))
        else:
            rows.append((name, group, "", f"failed: {out.with_suffix('.log')}"))
    columns = ["notebook", "group", "seconds", "executed copy"]
    print(pd.DataFrame(rows, columns=columns).to_string(index=False))


def main(command: str, arguments: Sequence[str]) -> int:
    """Run a notebook, or print the table of those that were run."""
    if command == "run":
        name, group, source, out = arguments
        return run_again(name, group, source, Path(out))
    try:
        request = dict(argument.split("=", 1) for argument in arguments)
        print_table([f"_build/{out}" for out in reruns(request)])
    except BadInput as error:
        sys.exit(f"carry: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
