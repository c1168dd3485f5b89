"""Options of the command line that click has not got."""

from pathlib import Path
from typing import Any

import click


class PathOption(click.Path):
    """A path, as a `Path`; not an empty one, which would be the current folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("an empty path, expected one that names something.", param, ctx)
        return super().convert(value, param, ctx)


PATH = PathOption()
