"""Run pages again with each shipped group: each runs to its end, or refuses the group in one line.

reruns.py [what=…] [groups=…]   as `make rerun` takes them; none: a page of each kind, all groups

The text of a page is about the book's own runs, and a copy with other parameters opens with a line
that says so. Boxes, tables and figures are about the copy's runs; what a program can see of them
is checked here.
"""

import re
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import jobs
import matplotlib.pyplot as plt
import nbformat
import torch
from nbformat import NotebookNode

from carry_core.errors import BadInput
from carry_core.files import ROOT
from carry_paper.ledger import ledger
from carry_paper.pages.parameters import BANNER, INJECTED
from carry_paper.pages.standalone import standalone
from carry_train import groups

# A page of each kind, with parameters that keep it short.
KINDS: dict[str, dict[str, Any]] = {
    "start_here": {},  # a sum
    "fig03_attention_per_task": {"n_examples": 100},  # maps of attention
    "fig04_pca_journey": {"n_examples": 1_000},  # principal axes
    "fig05_mlp_evolution": {"n_examples": 100},  # learning curves beside weights
    "fig08_one_layer_runs": {"n_examples": 500},  # every run's learning curves
    "fig11_learning_dynamics": {},  # one run's
    "fig14_carry_axis": {"n_examples": 2_000},  # neurons
    "fig17_pentagon": {"n_examples": 1_000},  # shapes in a plane
    "fig20_length_generalisation": {"n_examples": 100},  # longer sums
    "fig24_primed_journey": {"n_examples": 450},  # classes of longer sums
    "fig26_full_adder": {"n_examples": 1_000},  # linear probes
    "tab01_decision_head_and_final_mlp": {"n_examples": 200},  # ablations
    "tab05_decoder": {"n_examples": 1_000},  # neurons ablated
    "does_the_head_decide": {"n_examples": 50},  # swaps between sums
    "one_line_carries": {"n_examples": 50, "run": 0},  # swaps of a direction
    "the_same_algorithm_elsewhere": {"n_examples": 50},  # stored results of all groups
}
SHORTEST_ALT = 25  # of what a figure is, without the parameters that it was drawn with
VERDICT_OF_A_ROW = re.compile(r'<button[^>]*class="verdict .*?claims\.html#([^"]+)"', re.S)


class Rerun(NamedTuple):
    """A page that ran again.

    Attributes:
        notebook: The executed copy.
        values: What its cells defined.
    """

    notebook: NotebookNode
    values: dict[str, Any]


def rerun(name: str, parameters: Mapping[str, Any]) -> Rerun:
    """Run a notebook in this process with other parameters, as papermill would.

    Its figures are drawn but not stored as images, which would take longer than all the rest.

    Raises:
        BadInput: It refuses the parameters.
    """
    notebook = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", 4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    injected = INJECTED + "".join(f"{key} = {value!r}\n" for key, value in parameters.items())
    ran: list[str] = []
    values: dict[str, Any] = {}
    kernel = SimpleNamespace(user_ns={"In": ran})
    for i, cell in enumerate(cells):
        cell.outputs = []

        def keep(data: Any, cell: NotebookNode = cell, **options: Any) -> None:
            metadata = options.get("metadata", {})
            if not options.get("raw"):
                data = {"text/plain": repr(data)}
            cell.outputs.append(nbformat.v4.new_output("display_data", data, metadata=metadata))

        with (
            patch("IPython.display.display", keep),
            patch("IPython.get_ipython", lambda: kernel),
            patch("carry_paper.pages.show.png", lambda figure: ""),
        ):
            for source in (cell.source, injected) if i == 0 else (cell.source,):
                ran.append(source)
                exec(compile(source, f"{name}, cell {i}", "exec"), values)
    return Rerun(notebook, values)


def texts_of_images(notebook: NotebookNode) -> list[str]:
    """Return the alternative texts of an executed notebook's figures."""
    images = _outputs(notebook, "image/png")
    return [output.metadata["image/png"].get("alt", "") for output in images]


def _outputs(notebook: NotebookNode, kind: str) -> Iterator[NotebookNode]:
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if kind in output.data:
                yield output


def verdicts_on_others(notebook: NotebookNode, group: str) -> list[str]:
    """Return the rows that a page's box judges although they are about other groups only."""
    if any("all_groups=True" in cell.source for cell in notebook.cells):
        return []
    boxes = [
        output.data["text/html"]
        for output in _outputs(notebook, "text/html")
        if output.metadata.get("scrapbook", {}).get("name") == "verdicts"
    ]
    rows = [ledger.by_id(source) for source in ("ours", "author")]
    others = []
    for row_id in dict.fromkeys(VERDICT_OF_A_ROW.findall("".join(boxes))):
        names = {name for by_id in rows if row_id in by_id for name in by_id[row_id].groups}
        if names and group not in names:
            others.append(f"a verdict on {row_id}, which is about {', '.join(sorted(names))}")
    return others


def faults(page: Rerun, group: str) -> list[str]:
    """Return what a program can see is wrong with a page that ran again with a group."""
    wrong = verdicts_on_others(page.notebook, group)
    for alt in texts_of_images(page.notebook):
        if len(alt.partition("In the book this figure is: ")[2] or alt) < SHORTEST_ALT:
            wrong.append(f"an alternative text that says little: {alt!r}")
    has_banner = any(
        output.get("metadata", {}).get("scrapbook", {}).get("name") == BANNER
        for output in _outputs(page.notebook, "text/html")
    )
    readable = standalone(page.notebook, ROOT / "notebooks").cells
    if has_banner and "> **The text is about" not in readable[0].source:
        wrong.append("it does not open with the line that says what its text is about")
    if not has_banner and not page.values["page"].as_in_the_book:
        wrong.append("no line says what its text is about")
    for cell in readable:
        if cell.cell_type == "markdown" and "{glue" in cell.source:
            wrong.append(f"a marker is left in: {cell.source[:80]}")
    return list(dict.fromkeys(wrong))


def outcome(name: str, group: str) -> tuple[list[str], bool]:
    """Return what is wrong with a page that runs again with a group, and True if it refuses it."""
    try:
        page = rerun(name, {"group": group} | KINDS.get(name, {}))
        return [f"{group}: {fault}" for fault in faults(page, group)], False
    except BadInput:
        return [], True
    except Exception:
        return [f"{group}: {traceback.format_exc()}"], False
    finally:
        plt.close("all")


def requested(request: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the names of the pages and of the groups that are asked for.

    Raises:
        BadInput: There is no such page or group.
    """
    pages = [
        name
        for start in (request.get("what") or "").split()
        for name in jobs.notebooks_starting_with(start)
    ]
    names = [groups.find(name).name for name in (request.get("groups") or "").split()]
    return pages or [*KINDS], names or [*groups.GROUPS]


def main(arguments: Sequence[str]) -> int:
    """Say of each page with which groups something is wrong; return 1 if there are any."""
    try:
        pages, names = requested(dict(argument.split("=", 1) for argument in arguments))
    except BadInput as error:
        sys.exit(f"carry: {error}")
    torch.set_num_threads(1)
    n_wrong = 0
    for name in pages:
        began = time.process_time()
        outcomes = [outcome(name, group) for group in names]
        wrong = [fault for faults_of_group, _ in outcomes for fault in faults_of_group]
        n_refused = sum(refused for _, refused in outcomes)
        n_wrong += len(wrong)
        seconds = round(time.process_time() - began)
        print(
            f"{name}: {len(names) - n_refused} groups, {n_refused} refused, {len(wrong)} wrong, "
            f"{seconds} s",
            flush=True,
        )
        for line in wrong:
            print(f"  {line}", flush=True)
    return int(n_wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
