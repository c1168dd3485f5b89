"""The paper's figures and tables: each function returns a `Figure` or a `Table`, for `page` to show."""

from carry_core.plots.cells import Part, bars_of_cells, outcome_bars, table_of_cells
from carry_core.plots.language import (
    ORDINALS,
    separation_curves,
)
from carry_core.plots.longer import (
    table_of_accuracies,
    table_of_heads,
    table_of_mlp,
    table_of_parts,
    table_of_separations,
    table_of_stairs,
)
from carry_core.plots.scatter import (
    journey_grid,
)
from carry_core.plots.style import CLASS_COLOURS, DIGIT_COLOURS, class_colours

__all__ = [
    "CLASS_COLOURS",
    "DIGIT_COLOURS",
    "ORDINALS",
    "Part",
    "bars_of_cells",
    "class_colours",
    "journey_grid",
    "outcome_bars",
    "separation_curves",
    "table_of_accuracies",
    "table_of_cells",
    "table_of_heads",
    "table_of_mlp",
    "table_of_parts",
    "table_of_separations",
    "table_of_stairs",
]
