"""A page of the book run again in the tests' own process."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import nbformat
from nbformat import NotebookNode

from carry_core.files import ROOT
from carry_paper.pages.parameters import INJECTED


def rerun(name: str, parameters: Mapping[str, Any]) -> tuple[NotebookNode, dict[str, Any]]:
    """Run a notebook with other parameters, as papermill would.

    Returns the executed copy, and what its cells defined. Its figures are drawn but not stored as
    images, which would take longer than all the rest.
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
    return notebook, values
