"""Batches of reruns: Table 1 and Figure 3 over every source and two-layer group at hand, and over runs."""

from pathlib import Path
from typing import Any

import nbformat
import pytest

from carry_core import groups, runs
from carry_core.errors import BadInput

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
TWO_LAYERS = [g.name for g in groups.GROUPS.values() if g.config.layers == 2 and g.n_digits == 3 and not g.padded]


def at_hand() -> list[tuple[str, str]]:
    found = []
    for source in ("ours", "author"):
        for group in TWO_LAYERS:
            try:
                runs.load(group, source)
            except BadInput:
                continue
            found.append((source, group))
    return found


def rerun(name: str, shown: list[Any], **parameters: Any) -> dict[str, Any]:
    """Run a notebook's code as papermill would, in this process."""
    (path,) = NOTEBOOKS.glob(f"{name}_*.ipynb")
    first, *others = (cell.source for cell in nbformat.read(path, 4).cells if cell.cell_type == "code")
    values: dict[str, Any] = {}
    exec(first, values)
    assert parameters.keys() <= values.keys()
    values |= parameters
    for source in others:
        exec(source, values)
    assert shown
    return values


@pytest.fixture
def shown(monkeypatch) -> list[Any]:
    """What a notebook puts on its page."""
    import IPython.display

    outputs: list[Any] = []
    monkeypatch.setattr(IPython.display, "display", lambda *data, **_: outputs.extend(data))
    return outputs


def test_our_main_group_is_at_hand():
    assert ("ours", groups.MAIN) in at_hand()


@pytest.mark.parametrize(("source", "group"), at_hand(), ids=str)
def test_table_1_and_figure_3_of_a_group(shown, source, group):
    values = rerun("tab01", shown, source=source, group=group, n_examples=40)
    assert values["cells"].run.nunique() == len(runs.load(group, source).numbers)
    values = rerun("fig03", shown, source=source, group=group, n_examples=40)
    assert values["run"] in runs.load(group, source).numbers


@pytest.mark.parametrize("run", [0, 5])
def test_figure_3_of_a_run(shown, run):
    assert rerun("fig03", shown, run=run, n_examples=40)["maps"]["run"] == run
