"""The playground page: its arithmetic against PyTorch's in Node, and the page itself in a headless Chromium."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from carry_core import runs
from carry_core.groups import MAIN
from carry_core.interventions import Ablation, from_json
from carry_core.plots import playground
from tests import chromium

ROOT = Path(__file__).parent.parent
SITE = ROOT / "_build" / "html" / "book" / "playground.html"
PARTS = sorted((ROOT / "book" / "playground").glob("*.*"))

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node is not here to run the page's scripts")
needs_browser = pytest.mark.skipif(
    chromium.PROGRAM is None or not SITE.exists(), reason="the page needs Chromium and a site: run make book"
)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    out = tmp_path_factory.mktemp("playground")
    playground.export(out, out / "reference")
    return out


@needs_node
def test_every_hook_point_and_answer_is_pytorchs(exported):
    environment = os.environ | {"PLAYGROUND_RUNS": str(exported), "PLAYGROUND_REFERENCE": str(exported / "reference")}
    command = ["node", "--test", str(ROOT / "tests" / "playground.test.js")]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, result.stdout[-6000:]
    ties = re.findall(r"(\d+) digits differ by a tie", result.stdout)
    assert len(ties) == 2 * sum(map(len, playground.CHOSEN.values()))
    print(f"ties: {', '.join(ties)}")


def test_a_run_of_two_layers_stays_below_600_kb(exported):
    sizes = {path.name: path.stat().st_size for path in exported.glob("*-run*.js")}
    assert len(sizes) == 9
    assert all(size <= 600_000 for name, size in sizes.items() if not name.startswith("n3")), sizes


def test_the_page_itself_stays_small():
    own = [path for path in PARTS if path.suffix in (".js", ".css")]
    assert sum(path.stat().st_size for path in own) < 300_000
    assert sum(len(path.read_text().splitlines()) for path in own if path.suffix == ".js") < 1200


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    found = chromium.Chromium(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


SPOKEN = "document.getElementById('pg-spoken').textContent"


def show(browser, fragment="", width=1400):
    browser.errors.clear()
    browser.open(SITE.as_uri() + fragment, width)
    browser.wait("document.getElementById('pg-foot') && document.getElementById('pg-foot').textContent")


def type_into(browser, field, text):
    browser.run(
        f"{{ const field = document.getElementById('{field}'); field.focus(); field.value = {json.dumps(text)};"
        " field.dispatchEvent(new Event('input', { bubbles: true })); field.blur(); }"
    )


@needs_browser
def test_a_reader_types_a_sum_and_takes_a_head_out(browser):
    show(browser)
    type_into(browser, "pg-a", "261")
    type_into(browser, "pg-b", "332")
    browser.wait(f"{SPOKEN} === '261 + 332 = 593, right.'")
    browser.run("[...document.querySelectorAll('.pg-switch')].find((x) => x.textContent === 'head 1:0').focus()")
    browser.press("Enter")
    browser.wait("document.getElementById('pg-call').textContent === 'Ablation(heads={(1, 0)})'")
    held = browser.run("new URLSearchParams(location.hash.slice(1)).get('do')")
    part = Ablation.from_json(held)
    assert part == Ablation(heads={(1, 0)})
    model = runs.load(MAIN).model(0)
    tokens = playground.sums.encode(torch.tensor([261]), torch.tensor([332]), model.config.layout)
    answer = "".join(map(str, model(tokens, part.hook(model), model.config.layout.answer)[0].argmax(-1).tolist()))
    assert browser.run(SPOKEN).startswith(f"261 + 332 = {answer}")
    assert browser.errors == []


@needs_browser
@pytest.mark.parametrize("width", [400, 1400])
def test_a_link_shows_what_it_says_at_each_width(browser, width):
    part = '{"kind":"Patch","heads":[[1,0]],"positions":[7],"source":[261,332]}'
    show(browser, f"#run={MAIN}/2&sum=345+278&do={part}&frame=5", width)
    assert browser.run("document.getElementById('pg-run').value") == f"{MAIN}/2"
    assert browser.run("document.getElementById('pg-stepper').textContent").startswith("5 of 7")
    call = browser.run("document.getElementById('pg-call').textContent")
    assert eval(call, {"Patch": playground.Patch}) == from_json(part)
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.errors == []


@needs_browser
def test_the_copied_python_does_the_same(browser, capsys):
    show(browser, f'#run={MAIN}/0&sum=345+278&do={{"kind":"Ablation","mlps":[1]}}')
    exec(browser.run("CarryState.python(CarryState.parse(location.hash, [{ id: 'n2_s0.3_w0.2/0' }], () => "
                     "({ layers: 2, heads: 2, d_ff: 128, width: 3 })).state)"), {})  # fmt: skip
    digits = "".join(map(str, json.loads(capsys.readouterr().out)))
    assert browser.run(SPOKEN).startswith(f"345 + 278 = {digits}.")


@needs_browser
@pytest.mark.parametrize(
    ("a", "said"),
    [("12x", "is not a sum"), ("1234", "more than three digits"), ("", "is not a sum"), ("999", "choose a sum up to")],
)
def test_a_bad_number_is_a_line_and_the_page_stays(browser, a, said):
    show(browser)
    before = browser.run(SPOKEN)
    type_into(browser, "pg-a", a)
    assert said in browser.run("document.getElementById('pg-message').textContent")
    assert browser.run(SPOKEN) == before
    assert browser.errors == []


@needs_browser
@pytest.mark.parametrize(
    ("fragment", "said"),
    [
        ("#%%%&&=nonsense", "expected run, sum, do, frame"),
        ("#run=n9/0", "is no run of this page"),
        ("#sum=900+900", "choose a sum up to"),
        ('#do={"kind":"Ablation","heads":[[7,0]]}', "This run has no heads"),
        ("#do=[1", "is no intervention"),
        ("#frame=8", "is no frame"),
    ],
)
def test_a_bad_address_is_a_line_and_the_page_stays(browser, fragment, said):
    show(browser, fragment)
    assert said in browser.run("document.getElementById('pg-message').textContent")
    assert browser.run(SPOKEN) == "345 + 278 = 623, right."
    assert browser.errors == []


@needs_browser
def test_every_control_has_a_name_and_the_page_is_quick(browser):
    show(browser)
    nameless = "[...document.querySelectorAll('.pg :is(button, input, select)')].filter((x) => !(x.textContent.trim() || x.ariaLabel || (x.labels && x.labels.length))).map((x) => x.outerHTML)"  # noqa: E501
    assert browser.run(nameless) == []
    browser.run("for (let i = 0; i < 3; i++) document.getElementById('pg-hundred').click()")
    browser.wait("/[1-9]\\d\\d random sums/.test(document.getElementById('pg-counts').textContent)")
    print(browser.run("document.getElementById('pg-foot').textContent"))
