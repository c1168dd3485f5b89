"""Links from what a figure shows of a run to the playground, with an intervention if it has one."""

from collections.abc import Mapping

from carry_core.interventions import Combined, Intervention
from carry_paper.pages.page import Page
from carry_paper.pages.playground import address, has_run


def run_link(page: Page, run: int) -> str | None:
    """Return a link to the playground with a run of the page; None if this does not have it."""
    if page.source != "ours" or page.path is not None or not has_run(page.group, run):
        return None
    return address(f"{page.group}/{run}")


def playground_links(
    page: Page, parts: Mapping[str, Mapping[int, Intervention | Combined]]
) -> dict[tuple[str, str], str]:
    """Return links to the playground by part and run, for the shipped runs that this has.

    `parts` has interventions by the name of a part in the figure, and by run.
    """
    return {
        (part, str(run)): address(f"{page.group}/{run}", intervention=intervention)
        for part, interventions in parts.items()
        for run, intervention in interventions.items()
        if run_link(page, run)
    }
