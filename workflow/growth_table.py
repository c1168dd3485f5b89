"""Write the table of growing costs in `book/reading.md`, from what `carry bench growth` stored."""

import marked
import pandas as pd

from carry_core.files import ROOT
from carry_paper import bench
from carry_paper.bench import growth

PAGE = ROOT / "book" / "reading.md"
MARK = "make growth"
COSTS = (growth.MEASURING, growth.TRAINING)


def table(stored: bench.Row) -> str:
    """Return a line for each size that grows, with both costs and the powers they grow with.

    Args:
        stored: The benchmark, as `bench.saved` returns it.
    """
    fits = growth.exponents(stored["rows"])
    costs_in_words = " | ".join(f"{cost}, ms | power" for cost in COSTS)
    lines = [f"| what grows | sizes | {costs_in_words} |", "|---|---|---|---|---|---|"]
    for what, costs in fits.groupby("what", sort=False):
        sizes = costs["sizes"].iloc[0]
        cells = [str(what), ", ".join(f"{size:,}" for size in sizes)]
        by_cost = costs.set_index("cost")
        for cost in COSTS:
            cells += cost_cells(by_cost.loc[cost] if cost in by_cost.index else None)
        lines.append(f"| {' | '.join(cells)} |")
    lines.append("")
    lines.append(
        f"(Processor time of one thread on {stored['processor']}, {stored['capability']}, PyTorch "
        f"{stored['torch']}, at commit {stored['commit']}.)"
    )
    return "\n".join(lines) + "\n"


def cost_cells(fit: pd.Series | None) -> list[str]:
    """Return a cost at each size, and the power; dashes where it was not measured."""
    if fit is None:
        return ["–", "–"]
    milliseconds = ", ".join(f"{value:,.0f}" for value in fit["ms"])
    return [milliseconds, f"{fit['exponent']:.2f}"]


if __name__ == "__main__":
    marked.replace(PAGE, MARK, table(bench.saved("growth")))
