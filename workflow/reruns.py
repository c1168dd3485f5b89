"""Run pages again with each shipped group, and check what their sentences then say.

reruns.py [what=…] [groups=…]   as `make rerun` takes them; none: a page of each kind, all groups

A sentence must be true for every value that a rerun puts into it. What a program can see is checked
here; all else is for a person to read: `_build/reruns/` gets a file for each page, which has each
paragraph with values in it once for each wording that the groups give it.
"""

import copy
import re
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
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
from carry_paper.pages.parameters import INJECTED
from carry_paper.pages.standalone import glued, standalone
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
FOLDER = ROOT / "_build" / "reruns"
SHORTEST_ALT = 25  # of what a figure is, without the parameters that it was drawn with
# What no sentence has, and why.
ODD = {
    r"\{[\w:]+\}`": "a marker without its value",
    r"(?<![\w/.`])(nan|NaN|inf|None|NaT)(?![\w`])": "no number",
    r",\s*,|\(\s*\)|\(\s*,|,\s*\)|\band\s+and\b|,\s+and\s*[.,;:]": "an empty list",
    r"\b0 of (our |the author’s )?0\b": "0 of 0",
    r"\b1 of (our |the author’s )?1\b": "1 of 1",
    r"(?<!of )(?<![\d.,–:/])\b1 (runs|models|heads|sums|digits|epochs|neurons|pairs|columns"
    r"|classes|layers|positions|others|axes)\b": "a plural for one",
    r"(?<![\d.,:/])\b([02-9]|[1-9]\d+) (run|model|head|sum|digit|epoch|neuron|pair|column|class"
    r"|layer|position)\b(?!-)": "a singular for several",
    r"(?<=\w )–(?=[ ,.;:)])": "a dash for a value",
    r"(?<![\d.])([\d.]+\d|\d) (?:to|and) \1(?![.,]?\d)": "a range of one number",
    r"(?<=[\s(])-\d": "a hyphen for a minus",
    r"\bonly run (are|have|do|were|show|answer|keep|reach|need|end)\b": "a plural for one",
    r" [,.;:](?![\d.\w])": "a space before a mark",
    r"(?<![.(/])\.\.(?![./])": "two full stops",
}
COUNTED = re.compile(r"\b(\d+) of (?:our |the author’s )?(\d+) runs \(([\d, and]+)\)")
ALL = re.compile(r"\ball (\d+) of (our|the author’s) runs")
VERDICT_OF_A_ROW = re.compile(r'<button[^>]*class="verdict .*?claims\.html#([^"]+)"', re.S)


class Rerun(NamedTuple):
    """A page that ran again.

    Attributes:
        notebook: The executed copy.
        values: What its cells defined.
    """

    notebook: NotebookNode
    values: dict[str, Any]


class Paragraph(NamedTuple):
    """A paragraph with values in it.

    Attributes:
        template: Its text with the book's markers.
        text: The same with values.
    """

    template: str
    text: str


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


def paragraphs(notebook: NotebookNode) -> list[Paragraph]:
    """Return the paragraphs of an executed notebook that have values in them."""
    split = copy.deepcopy(notebook)
    templates = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            templates += [text for text in cell.source.split("\n\n") if "{glue:text}" in text]
    split.cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    split.cells += [nbformat.v4.new_markdown_cell(template) for template in templates]
    filled = standalone(split, ROOT / "notebooks").cells[-len(templates) :] if templates else []
    return [
        Paragraph(template, cell.source) for template, cell in zip(templates, filled, strict=True)
    ]


def texts_of_images(notebook: NotebookNode) -> list[str]:
    """Return the alternative texts of an executed notebook's figures."""
    images = _outputs(notebook, "image/png")
    return [output.metadata["image/png"].get("alt", "") for output in images]


def _outputs(notebook: NotebookNode, kind: str) -> Iterator[NotebookNode]:
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if kind in output.data:
                yield output


def odd_words(text: str) -> list[str]:
    """Return what no sentence should have, and where."""
    odd = []
    for pattern, meaning in ODD.items():
        for match in re.finditer(pattern, text):
            around = text[max(0, match.start() - 40) : match.end() + 40].replace("\n", " ")
            odd.append(f"{meaning}: …{around}…")
    return odd


def wrong_counts(text: str, n_ours: int, source: str) -> list[str]:
    """Return the counts of runs that their lists, or the runs of the page, contradict.

    Args:
        text: A paragraph.
        n_ours: The number of runs that the page loaded.
        source: Whose they are, `ours` or `author`.
    """
    wrong = []
    for match in COUNTED.finditer(text):
        listed = re.findall(r"\d+", match[3])
        if not int(match[1]) == len({*listed}) == len(listed) < int(match[2]):
            wrong.append(f"a count that its list contradicts: {match[0]}")
    whose = {"ours": "our", "author": "the author’s"}[source]
    for match in ALL.finditer(text):
        sentence = text[text.rfind(". ", 0, match.start()) + 1 : match.end()]
        if match[2] == whose and int(match[1]) > n_ours and "main model" not in sentence:
            wrong.append(f"more runs than the page has, which are {n_ours}: {match[0]}")
    return wrong


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
    loaded = page.values["page"].loaded_runs
    n_runs = len(loaded.numbers) if loaded is not None else 0
    for paragraph in paragraphs(page.notebook):
        wrong += odd_words(paragraph.text)
        wrong += wrong_counts(paragraph.text, n_runs, page.values["source"])
    for alt in texts_of_images(page.notebook):
        wrong += odd_words(alt)
        if len(alt.partition("In the book this figure is: ")[2] or alt) < SHORTEST_ALT:
            wrong.append(f"an alternative text that says little: {alt!r}")
    for name, value in glued(page.notebook).items():
        if isinstance(value, float) and value != value:
            wrong.append(f"{name} is no number")
    readable = standalone(page.notebook, ROOT / "notebooks")
    for cell in readable.cells:
        if cell.cell_type == "markdown" and "{glue" in cell.source:
            wrong.append(f"a marker is left in: {cell.source[:80]}")
    return list(dict.fromkeys(wrong))


class Report:
    """The sentences of a page by group, and what is wrong with them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.wordings: dict[str, dict[str, list[str]]] = {}  # by template, then by wording: groups
        self.refused: dict[str, list[str]] = {}
        self.wrong: list[str] = []

    def add(self, group: str) -> None:
        """Run the page with a group."""
        parameters = {"group": group} | KINDS.get(self.name, {})
        try:
            page = rerun(self.name, parameters)
            self.wrong += [f"{group}: {fault}" for fault in faults(page, group)]
        except BadInput as error:
            self.refused.setdefault(str(error), []).append(group)
            return
        except Exception:
            self.wrong.append(f"{group}: {traceback.format_exc()}")
            return
        finally:
            plt.close("all")
        for template, text in paragraphs(page.notebook):
            self._word(template, text, group)
        for i, alt in enumerate(texts_of_images(page.notebook)):
            self._word(f"Alternative text of figure {i + 1}", alt, group)
        foot = re.findall(r"<p>\s*((?:(?!<p>).)*?)\s*</p>\s*</div>\s*$", _box(page.notebook), re.S)
        if foot:
            self._word("Foot of the box", foot[0], group)

    def _word(self, template: str, text: str, group: str) -> None:
        self.wordings.setdefault(template, {}).setdefault(text, []).append(group)

    def __str__(self) -> str:
        lines = [f"# {self.name}"]
        lines += [f"\nRefused ({', '.join(names)}): {why}" for why, names in self.refused.items()]
        lines += [f"\n**Wrong.** {fault}" for fault in self.wrong]
        for template, wordings in self.wordings.items():
            lines.append("\n---\n\n> " + template.replace("\n", "\n> "))
            lines += [f"\n- *{', '.join(names)}*: {text}" for text, names in wordings.items()]
        return "\n".join(lines) + "\n"


def _box(notebook: NotebookNode) -> str:
    for output in _outputs(notebook, "text/html"):
        if output.metadata.get("scrapbook", {}).get("name") == "verdicts":
            return str(output.data["text/html"])
    return ""


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
    """Write the sentences of each page, and return 1 if something is wrong with some."""
    try:
        pages, names = requested(dict(argument.split("=", 1) for argument in arguments))
    except BadInput as error:
        sys.exit(f"carry: {error}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    n_wrong = 0
    for name in pages:
        began = time.process_time()
        report = Report(name)
        for group in names:
            report.add(group)
            (FOLDER / f"{name}.md").write_text(str(report))
        n_wrong += len(report.wrong)
        n_refused = sum(map(len, report.refused.values()))
        seconds = round(time.process_time() - began)
        print(
            f"{name}: {len(names) - n_refused} groups, {n_refused} refused, "
            f"{len(report.wrong)} wrong, {seconds} s",
            flush=True,
        )
        print_lines(report.wrong)
    print(f"To be read: {FOLDER.relative_to(Path.cwd())}/*.md")
    return int(n_wrong > 0)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines below a heading."""
    for line in lines:
        print(f"  {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
