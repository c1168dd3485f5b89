"""Links from what a figure shows of a run to the playground, with an intervention if it has one."""

from collections.abc import Mapping
from typing import Any

from carry_core.interventions import Combined, Intervention, Patch
from carry_paper.pages.page import Page
from carry_paper.pages.playground import address

NO_CARRY_IN = (312, 271)  # has the hundreds of the playground's first sum, and no carry into them


def run_link(
    page: Page, run: int, intervention: Intervention | Combined | None = None
) -> str | None:
    """Return a link to the playground with a run of the page; None if this does not have it."""
    if page.source != "ours" or page.path is not None:
        return None
    return address(page.group, run, intervention) or None


def playground_links(
    page: Page, parts: Mapping[str, Mapping[int, Intervention | Combined]]
) -> dict[tuple[str, str], str]:
    """Return links to the playground by part and run, for the shipped runs that this has.

    `parts` has interventions by the name of a part in the figure, and by run.
    """
    links = {}
    for part, interventions in parts.items():
        for run, intervention in interventions.items():
            link = run_link(page, run, intervention)
            if link:
                links[part, str(run)] = link
    return links


def swap_links(page: Page, heads: Mapping[int, int]) -> dict[tuple[str, str], str]:
    """Return links to swaps at the hundreds, by column of `plots.last_layer.draw_parts` and run.

    The playground's first sum gets the output of one head of the last layer, or of the final MLP,
    for a sum without a carry into the hundreds. `heads` has the head of each run.
    """
    last, hundreds = page.runs.config.layers - 1, page.runs.config.layout.answer[:1]

    def swap(**part: Any) -> Patch:
        return Patch(**part, positions=hundreds, source=NO_CARRY_IN)

    parts = {
        "one head": {run: swap(heads={(last, head)}) for run, head in heads.items()},
        "final MLP": {run: swap(mlps={last}) for run in heads},
    }
    return playground_links(page, parts)
