"""Each row of the ledger opens an issue, once the repository has an address."""

from urllib.parse import parse_qs, urlsplit

import issue_links
import yaml

from carry_core.files import ROOT
from carry_paper.pages import claims_page

URL = "https://github.com/owner/name"


def test_each_row_of_the_ledger_opens_an_issue_with_its_id(browser, tmp_path):
    outcomes = claims_page.read()
    page = tmp_path / "claims.html"
    html = claims_page.part("ledger", outcomes).html + issue_links.script(URL)
    page.write_text(f"<!doctype html><meta charset=utf-8>{html}", encoding="utf-8")
    browser.open(page.as_uri())
    links = browser.wait("[...document.querySelectorAll('.claims-id + a')].map((a) => a.href)")
    form = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/number.yml").read_text())
    fields = {part["id"] for part in form["body"]}
    rows = []
    for link in links:
        assert link.startswith(f"{URL}/issues/new?")
        query = parse_qs(urlsplit(link).query)
        assert query.keys() - {"template", "title"} <= fields
        rows += query["row"]
    assert sorted(rows) == sorted(entry.claim.id for entry in outcomes.entries)
