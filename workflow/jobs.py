"""What `make train` and `make rerun` are asked for, as Snakemake's targets; a notebook run again; the table of those.

jobs.py run NAME GROUP SOURCE OUT      run a notebook with a group's weights, and say in OUT what became of it
jobs.py table what=… groups=… source=…  print what became of those that are asked for, as `make rerun` is
"""

import json
import re
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
import papermill
from papermill.exceptions import PapermillExecutionError

from carry_core import groups, runs
from carry_core.errors import BadInput
from carry_core.files import ROOT, data_dir
from carry_paper.ledger import claims, results
from carry_paper.training import fused, loop, seeds
from carry_paper.training.trainer import PRECISIONS

WHOLE = "all"  # epochs of a recipe


def trainings(asked: Mapping[str, str]) -> list[str]:
    """The stamps of the runs that `data/runs` lacks, of those that are asked for.

    Args:
        asked: `groups` (names, or nothing for all), `runs` (as `carry train` takes them), `recipe`,
        `epochs`,
            `precision`, `init_seed`, `order_seed`, `mask_seed`.

    Raises:
        BadInput: a group, range, recipe, precision, number of epochs or seed that does not exist,
            or a run that has other seeds.
    """
    found = []
    epochs = asked.get("epochs") or WHOLE
    if epochs != WHOLE and not re.fullmatch("[1-9][0-9]{0,5}", epochs):
        raise BadInput(f"EPOCHS={epochs}: expected a number of epochs from 1.")
    if (precision := asked.get("precision") or "bf16") not in PRECISIONS:
        raise BadInput(f"PRECISION={precision}: expected one of {', '.join(PRECISIONS)}.")
    if precision == "fused":
        fused.library()
    chosen = seeds.Seeds(*(seed(asked, name) for name in seeds.NAMES))
    for name in str(asked.get("groups") or "").split() or groups.GROUPS:
        group = groups.find(name)
        chosen.check_group(group)
        recipe = groups.find_recipe(
            asked.get("recipe") or "paper", group, None if epochs == WHOLE else int(epochs)
        )
        for run in loop.parse_run_numbers(asked.get("runs") or None, group):
            path = runs.run_path(data_dir() / "runs", name, recipe.name, run)
            stamp = Path(f"trained/{name}/{recipe.name}/run{run}.{epochs}")
            if loop.is_finished(path, group, recipe, chosen):
                continue
            stamp.unlink(missing_ok=True)  # of a run that was removed since
            found.append(str(stamp))
    return found


def seed(asked: Mapping[str, str], name: str) -> int | None:
    """`init_seed`, `order_seed` or `mask_seed`, None if not given; BadInput if it is no seed."""
    text = asked.get(f"{name}_seed") or ""
    if not re.fullmatch("[0-9]{0,19}", text) or int(text or 0) > seeds.MOST_SEED:
        expected = f"expected a whole number from 0 to {seeds.MOST_SEED}"
        raise BadInput(f"{name.upper()}_SEED={text}: {expected}.")
    return int(text) if text else None


def reruns(asked: Mapping[str, str]) -> list[str]:
    """What each notebook with each group leaves: `what` has notebooks or their beginnings, `groups` and `source`.

    Raises:
        BadInput: a notebook, group or source that does not exist.
    """
    runs.folder(asked.get("source") or "ours")
    there, found = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb")), []
    for start in str(asked.get("what") or "").split() or ["*"]:
        names = [name for name in there if name.startswith(start) or start == "*"]
        if not names:
            raise BadInput(
                f"WHAT={start}: no notebook begins so; expected some of {', '.join(there)}."
            )
        found += names
    wanted = [groups.find(name).name for name in str(asked.get("groups") or "").split()] or [
        *groups.GROUPS
    ]
    return [
        f"rerun/{asked.get('source') or 'ours'}/{group}/{name}.json"
        for name in found
        for group in wanted
    ]


def again(name: str, group: str, source: str, out: Path) -> int:
    """Run a notebook with a group's weights; 1 if it fails other than by refusing its parameters in one line."""
    executed, began, said = out.with_suffix(".ipynb"), time.monotonic(), ""
    try:
        notebook = ROOT / "notebooks" / f"{name}.ipynb"
        given = {"source": source}
        if "group" in papermill.inspect_notebook(notebook):  # pages of the whole ledger have none
            given["group"] = group
        papermill.execute_notebook(
            notebook, executed, given, cwd=ROOT, kernel_name="python3", progress_bar=False
        )
    except PapermillExecutionError as error:
        said = f"{error.ename}: {error.evalue}".splitlines()[0]
        if error.ename != BadInput.__name__:
            print(said, file=sys.stderr)
            return 1
        said = said.removeprefix(f"{BadInput.__name__}: ")
    out.write_text(json.dumps({"seconds": round(time.monotonic() - began), "said": said}))
    return 0


def verdicts(name: str, group: str, source: str) -> str:
    """The ledger's rows of that page and group, counted by verdict."""
    rows = results.by_id(source)
    counts: Counter[str] = Counter()
    for claim in claims.claims().values():
        row = rows.get(claim.id)
        if row is not None and claim.notebook == name and group in row.groups:
            counts[row.verdict] += 1
    return ", ".join(f"{n} {verdict}" for verdict, n in counts.most_common())


def table(outs: Sequence[str]) -> None:
    """A line for each notebook and group: the ledger's verdicts, seconds, the executed copy or why there is none."""
    rows = []
    for out in map(Path, outs):
        source, group, name = out.parent.parent.name, out.parent.name, out.stem
        if out.exists():
            about = json.loads(out.read_text())
            copy = about["said"] or str(out.with_suffix(".ipynb"))
            rows.append((name, group, verdicts(name, group, source), about["seconds"], copy))
        else:
            rows.append((name, group, "", "", f"failed: {out.with_suffix('.log')}"))
    columns = ["notebook", "group", "ledger", "seconds", "executed copy"]
    print(pd.DataFrame(rows, columns=columns).to_string(index=False))


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "run":
        sys.exit(again(*arguments[:3], Path(arguments[3])))
    try:
        asked = dict(argument.split("=", 1) for argument in arguments)
        table([f"_build/{out}" for out in reruns(asked)])
    except BadInput as error:
        sys.exit(f"carry: {error}")
