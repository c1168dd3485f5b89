"""axe-core finds nothing on the built pages that WCAG 2.1 forbids at level A or AA."""

import os
from itertools import product

import pytest

from tests.book.test_site import OURS
from tests.helpers.needs import AXE, SITE

# One page of each kind; `make axe` checks all of them.
SOME = ("index", "tab01_decision_head_and_final_mlp")
CHECKED = [path for path in OURS if path.stem in SOME or "CARRY_AXE" in os.environ]

VIOLATIONS = """(async () => {
  const runOnly = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"];
  const { violations } = await axe.run(document, { runOnly, preload: false });
  const line = (id, { target, failureSummary }) =>
    `${id}: ${target.join(" ")}: ${failureSummary.split("\\n").pop()}`;
  return violations.flatMap(({ id, nodes }) => nodes.map((node) => line(id, node)));
})()"""


@pytest.mark.slow
@pytest.mark.needs("axe-core", "the built site")
@pytest.mark.parametrize("path", CHECKED, ids=lambda path: path.stem)
def test_a_page_violates_no_rule_at_any_width_in_the_light_and_in_the_dark(browser, path):
    is_playground = path == SITE / "book" / "playground.html"
    browser.open(path.as_uri() + ("#beside=n2_s0.3_w0.2/4" if is_playground else ""))
    browser.wait("document.readyState === 'complete'")
    if is_playground:
        browser.wait("document.getElementById('pg-foot').textContent", 30)
    browser.run(f"{AXE.read_text(encoding='utf-8')}; true")
    for width, theme in product((1400, 400), ("light", "dark")):
        browser.resize(width, 1000)
        browser.run(f"document.documentElement.dataset.theme = '{theme}'")
        browser.wait("document.getAnimations().every((change) => change.playState !== 'running')")
        assert browser.run(VIOLATIONS) == [], (width, theme)
