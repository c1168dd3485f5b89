"""The page of rules agrees with itself, and its commits agree with the history."""

import re
import subprocess

import pytest

from carry_core.files import ROOT
from carry_paper.ledger import claims

PAGE = (ROOT / "book" / "protocol.md").read_text(encoding="utf-8")
RULES, LATER = PAGE.split("## What moved without a rule")
HEADING = r"^\((rule-[\w-]+)\)=\n### (\d{4}-\d\d-\d\d): [^\n]+\n"
TABLE = re.findall(r"^\| (\d{4}-\d\d-\d\d) \| \[.+?\]\(#(rule-[\w-]+)\) \|", RULES, re.MULTILINE)
SECTIONS = re.findall(HEADING + r"(.+?)(?=^\(rule-|\Z)", RULES, re.MULTILINE | re.DOTALL)


def test_the_table_on_top_lists_every_rule_newest_first():
    assert [(date, target) for target, date, _ in SECTIONS] == TABLE
    assert len(SECTIONS) == RULES.count("\n### ")
    dates = [date for _, date, _ in SECTIONS]
    assert dates == sorted(dates, reverse=True)


def test_a_rule_says_its_commit_whether_numbers_were_known_and_what_moved():
    for target, _, text in SECTIONS:
        assert re.search(r"^\| commit \| `[0-9a-f]{7}`", text, re.MULTILINE), target
        assert re.search(r"^\| numbers known\? \| \w", text, re.MULTILINE), target
        # The rows of rule-eight are new.
        assert re.search(r"^\|.* moved \|", text, re.MULTILINE) or target == "rule-eight", target


ROW = r"`((?:finding|beyond|n2|n2_w0|n2_s01|n3|digits4|pad6|pad6_finetuned|llm|tab5)/[\w/@]+)`"
# A rule about all rows; the families of rows in its lists are written with braces.
ABOUT_ALL = "rule-equivalence"
GONE = {
    "beyond/attention",
    "beyond/elsewhere",
    "beyond/elsewhere_attention",
    "beyond/elsewhere_mlp",
    "beyond/one_head",
    "beyond/past_final_mlp",
    "beyond/random_neurons",
    "finding/layer0_nine_either",
}


def test_each_row_that_a_rule_names_is_a_target_with_links_to_its_rules():
    listed = {}
    for target, name, links in re.findall(
        r'^\| <span id="([^"]+)"></span>`([^`]+)` \| (.+) \|$', RULES, re.MULTILINE
    ):
        assert target == name
        listed[name] = re.findall(r"\(#(rule-[\w-]+)\)", links)
    assert listed.keys() - GONE <= claims.claims().keys()
    assert not GONE & claims.claims().keys()
    for target, _, text in SECTIONS:
        if target != ABOUT_ALL:
            for name in re.findall(ROW, text.partition("## Rows by rule")[0]):
                assert target in listed[name], (target, name)


def test_each_row_names_the_section_of_its_rule_and_gives_its_date():
    dates = {target: date for date, target in TABLE}
    wrong = []
    for claim in claims.claims().values():
        if claim.made and dates.get(f"rule-{claim.made}") != str(claim.since):
            wrong.append((claim.id, claim.made, str(claim.since)))
    assert wrong == []


@pytest.mark.needs("the whole history")
def test_commits_exist_and_have_the_dates_that_the_page_gives():
    command = ["git", "log", "--format=%h %ad", "--abbrev=7", "--date=short"]
    log = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    dates = dict(line.split() for line in log.splitlines())
    commits = [(re.search(r"\| commit \| `(\w+)`", text)[1], date) for _, date, text in SECTIONS]
    commits += [
        (commit, date)
        for date, commit in re.findall(r"^\| ([\d-]{10}) \| `(\w{7})`", LATER, re.MULTILINE)
    ]
    assert [(commit, date) for commit, date in commits if dates.get(commit) != date] == []
    assert [commit for commit in re.findall(r"`([0-9a-f]{7})`", PAGE) if commit not in dates] == []
