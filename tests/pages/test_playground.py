"""The playground's arithmetic against PyTorch's in Node, and its page in a headless Chromium."""

import html
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import pytest
import torch

from carry_core import interventions as core_interventions
from carry_core import measure, runs, sums
from carry_core.hooks import no_hook
from carry_core.interventions import Ablation, Combined, Intervention, MeanAblation, Patch
from carry_core.model import ModelConfig, Transformer
from carry_paper import catalogue
from carry_paper.catalogue import load_curves
from carry_paper.findings import adder, corner_table
from carry_paper.pages import playground
from carry_train.groups import MAIN
from tests.book.test_notebooks import parameters
from tests.helpers.answers import answer
from tests.helpers.needs import SITE
from tests.helpers.tolerances import assert_close, tolerance

ROOT = Path(__file__).parents[2]
PLAYGROUND = SITE / "book" / "playground.html"
TRAINING = SITE / "notebooks" / "fig02_one_layer_transition.html"
ONE_LAYER = playground.SLIDERS["fig02"][0]
SOURCE = (274, 358)  # of the patches in `reference`

needs_node = pytest.mark.needs("Node")
needs_site = pytest.mark.needs("the built site")


def interventions(config: ModelConfig) -> list[Intervention | Combined]:
    """Interventions of every kind that the page offers, as `reference` deals them out."""
    last = config.layers - 1
    head, other_head, neurons = {(last, 0)}, {(last, 1)}, {(last, i) for i in range(10)}
    past_mlp = {f"blocks.{last}.mlp.skip"}
    positions = config.layout.answer[1:2]
    return [
        Ablation(heads=head),
        Ablation(heads=other_head),
        Ablation(mlps={last}),
        Ablation(skips={0}),
        Ablation(heads={(0, 0)}, neurons=neurons),
        Ablation(names=past_mlp),
        Ablation(heads=head, positions=positions),
        MeanAblation(heads=head),
        MeanAblation(mlps={0}),
        MeanAblation(skips={last}, names=past_mlp),
        MeanAblation(neurons=neurons),
        Patch(heads=head, source=SOURCE),
        Patch(mlps={last}, source=SOURCE),
        Patch(skips={last}, positions=positions, source=SOURCE),
        Patch(neurons=neurons, names=past_mlp, source=SOURCE),
        Ablation(mlps={0}) | Patch(heads=head, source=SOURCE),
        MeanAblation(heads=other_head) | Ablation(neurons=neurons),
    ]


@torch.inference_mode()
def reference(model: Transformer, count: int = 68, seed: int = 3) -> dict[str, Any]:
    """PyTorch's numbers for a run, in float32: the page's arithmetic has to agree with them.

    Returns:
        `activations` of three sums at every hook point, masked scores as -1e30; logits `[sum, pos,
        12]` of `count` random sums with `interventions` dealt out in turn, and intact, each at the
        answer's positions.
    """
    config, answer = model.config, model.config.layout.answer
    a, b = sums.long_sums(count, config.width, torch.Generator().manual_seed(seed))
    tokens = sums.encode(a, b, config.layout)
    _, cache = model.run_with_cache(tokens[:3])
    parts = interventions(config)
    changed = torch.empty(count, len(answer), sums.VOCABULARY)
    for i, part in enumerate(parts):
        hook = part.hook(
            model, playground.reference_means(model) if "MeanAblation" in part.to_json() else None
        )
        changed[i :: len(parts)] = model(tokens[i :: len(parts)], hook)[:, list(answer)]
    return {
        "sums": torch.stack([a, b], 1).tolist(),
        "activations": {name: x.clamp(min=-1e30).tolist() for name, x in cache.items()},
        "interventions": [part.to_json() for part in parts],
        "intact_logits": _rounded(model(tokens, read=answer)),
        "changed_logits": _rounded(changed),
        "held": held_reference(model),
    }


HELD = (-0.4, 0.0, 0.31, 0.5, 0.77, 1.0, 1.4)  # coordinates


@torch.inference_mode()
def held_reference(model: Transformer) -> list[dict[str, Any]]:
    """PyTorch's logits with a carry or a nine held, intact and under two interventions."""
    config, answer = model.config, model.config.layout.answer
    a, b = torch.tensor([[352, 271], [261, 332], [345, 278]]).T
    tokens = sums.encode(a, b, config.layout)
    head = {(config.layers - 1, measure.decision_head(model))}
    cases = []
    for part in (None, Ablation(heads=head), Patch(heads=head, source=SOURCE)):
        hook = part.hook(model) if part else no_hook
        for line in playground.lines(model):
            place = playground.PLACES[line.column]
            for value in HELD:
                held = {place: 0.31} | {line.id: value}  # a nine beside a carry that is held, too
                hold = playground.coordinate_hook(model, held)

                def both(name: str, x: torch.Tensor, hook=hook, hold=hold) -> torch.Tensor:
                    return hold(name, hook(name, x))

                logits = model(tokens, both)[:, list(answer)]
                cases.append(
                    {
                        "do": part.to_json() if part else "[]",
                        "line": line.id,
                        "held": held,
                        "sums": torch.stack([a, b], 1).tolist(),
                        "logits": _rounded(logits),
                    }
                )
    return cases


def _rounded(x: torch.Tensor) -> Any:
    return np.round(x.double().numpy(), 5).tolist()


@pytest.mark.slow
@needs_node
@pytest.mark.parametrize("group", [MAIN, "decoder_n2_s0.3_w0.2"])
def test_every_hook_point_and_answer_is_pytorchs(tmp_path, group, monkeypatch):
    """In a run of an encoder, and of a decoder."""
    monkeypatch.setattr(playground, "FITTED", 600)  # probes are tested below
    monkeypatch.setattr(playground, "TUPLES", 200)  # and so are lines
    for module in (playground, core_interventions):
        monkeypatch.setattr(module, "REFERENCE_SUMS", 600)
    model = catalogue.load(group).model(0)
    monkeypatch.setattr(runs.Runs, "model", lambda *_: model)  # its lines and means are cached
    script = tmp_path / playground.export_runs(tmp_path, {group: (0,)})[0]["file"]
    assert script.stat().st_size <= 600_000
    (tmp_path / "reference").mkdir()
    expected = reference(model)
    (tmp_path / "reference" / f"{script.stem}.json").write_text(json.dumps(expected))
    environment = os.environ | {
        "PLAYGROUND_RUNS": str(tmp_path),
        "PLAYGROUND_REFERENCE": str(tmp_path / "reference"),
    }
    command = ["node", "--test", str(ROOT / "playground" / "tests" / "playground.test.js")]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, result.stdout[-6000:]
    assert result.stdout.count("digits differ by a tie") == 2


@pytest.fixture
def noise(monkeypatch):
    """A model whose streams have nothing to do with the sums; their middle is away from zero."""
    monkeypatch.setattr(playground, "FITTED", 600)

    def streams(
        model: Transformer, a: torch.Tensor, b: torch.Tensor, names: list[str]
    ) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(0)
        return {name: 1 + torch.randn(len(a), 10, 128, generator=generator) for name in names}

    monkeypatch.setattr(playground.measure, "activations", streams)
    return Transformer(ModelConfig()), streams


def test_a_probe_of_what_is_not_there_is_right_by_chance(noise):
    """A probe of noise is right by chance on sums that it was not fitted on.

    128 coordinates can tell the 600 sums apart that it is fitted on.
    """
    model, _ = noise
    for probe, _ in playground.probes(model):
        assert probe["accuracy"] < (0.25 if probe["label"] in ("ones", "digit") else 0.65), probe


def test_a_probe_is_fisher_s_discriminant_with_a_tenth_of_shrinkage(noise):
    model, streams = noise
    a, b = sums.long_sums(1_200, 3, torch.Generator().manual_seed(1))
    probe, tensors = next(iter(playground.probes(model)))
    assert (probe["label"], probe["column"], probe["position"]) == ("ones", 0, 0)
    x, digit = (
        streams(model, a, b, [probe["name"]])[probe["name"]][:600, 0].double(),
        (a // 100 + b // 100)[:600] % 10,
    )
    means = torch.stack([x[digit == d].mean(0) for d in range(10)])
    apart = x - means[digit]
    within = apart.T @ apart / len(x)
    shrunk = 0.9 * within + 0.1 * within.diagonal().mean() * torch.eye(128)
    expected = torch.linalg.solve(shrunk, means.T).T
    assert_close(tensors["weight"], expected, computed_in=torch.float32)
    bias = (digit.bincount() / len(x)).log() - (means * expected).sum(1) / 2
    assert probe["bias"] == pytest.approx(bias.tolist(), abs=1e-4)


def test_a_sum_lies_on_a_plane_where_its_stream_is_projected(noise):
    model, streams = noise
    a, b = sums.long_sums(600, 3, torch.Generator().manual_seed(2))
    stream = streams(
        model, a, b, [f"blocks.{layer}.{point}" for layer in (0, 1) for point in playground.POINTS]
    )
    for plane, tensors in playground.planes(model):
        x = stream[plane["name"]][:, plane["position"]]
        projected = x @ tensors["axes"].T - torch.tensor(plane["centre"])
        torch.testing.assert_close(
            projected[: playground.SHOWN], tensors["points"], rtol=1e-3, atol=1e-3
        )


@pytest.mark.machine
def test_a_coordinate_is_held_where_its_line_says():
    """The coordinate becomes what was asked for, and nothing changes across the line."""
    model = catalogue.load(MAIN).model(2)
    config = model.config
    tokens = sums.encode(torch.tensor([352, 1]), torch.tensor([271, 22]), config.layout)
    lines = playground.lines(model)
    ids = ["hundreds", "hundreds-nine", "tens", "tens-nine"]
    assert [line.id for line in lines] == ids
    assert [line.column for line in lines] == [0, 0, 1, 1]
    point = lines[0].name
    with torch.inference_mode():
        _, before = model.run_with_cache(tokens, point)
        for line in lines:
            hold = playground.coordinate_hook(model, {line.id: 0.25})
            _, after = model.run_with_cache(tokens, point, hook=hold)
            change = (after[point] - before[point]).double()
            direction = line.direction.double()
            coordinate = after[point][:, line.position].double() @ direction
            expected = 0.75 * line.zero + 0.25 * line.one
            assert_close(coordinate, torch.full_like(coordinate, expected), torch.float32)
            along = change[:, line.position] @ direction / direction.square().sum()
            across = change[:, line.position] - along[:, None] * direction
            largest = float(before[point].abs().max())
            assert across.abs().max() < tolerance(torch.float32, largest)
            change[:, line.position] = 0
            assert not change.any()
    for carry, nine in (lines[:2], lines[2:]):
        assert abs(carry.direction @ nine.direction) < 0.002  # both are rounded to float16


@pytest.mark.machine
def test_lines_swap_as_the_book_has_stored():
    """With fewer sums: the carry alone fails in run 0, whose nines lie where carries lie."""
    stored = corner_table.saved()
    stored = stored[(stored.source == "ours") & (stored.group == MAIN) & (stored.recipe == "paper")]
    for run in (0, 2):
        lines = playground.lines(catalogue.load(MAIN).model(run))
        rows = stored[stored.run == run].sort_values("reads")
        for axis, of_axis in (("line", lines[::2]), ("plane", lines[1::2])):
            lowest = [min(cell["accuracy"] for cell in of_row[axis]) for of_row in rows.states]
            assert [line.share for line in of_axis] == pytest.approx(lowest, abs=0.08), axis


@needs_node
def test_an_address_is_read_by_one_function_that_takes_nothing_unseen():
    command = ["node", "--test", str(ROOT / "playground" / "tests" / "address.test.js")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-6000:]
    assert "# pass 12" in result.stdout


@pytest.mark.parametrize(
    "part",
    [
        None,
        Ablation(heads={(1, 0)}),
        Patch(heads={(1, 0)}, positions=(7, 8), source=SOURCE) | MeanAblation(mlps={1}),
    ],
    ids=lambda part: type(part).__name__,
)
def test_a_link_to_the_playground_has_the_run_the_sum_and_the_intervention(part):
    link = playground.address(MAIN, 2, part)
    page, _, fragment = link.partition("#")
    assert page == "../book/playground.html"
    held = dict(parse_qsl(fragment.replace("+", "%2B"), strict_parsing=True))
    assert (held["run"], held["sum"]) == (f"{MAIN}/2", "352+271")
    assert (Ablation.from_json(held["do"]) if "do" in held else None) == part
    assert not set(fragment) & set(' "<>{}[]')


PAGES = [*(ROOT / "book").glob("*.md"), *(ROOT / "notebooks").glob("*.ipynb")]
LINK = re.compile(r'href=\\?"[^"#]*#(run=[^"\\]*)')
LINKS = {(path.stem, link) for path in PAGES for link in LINK.findall(path.read_text())}


def test_links_of_the_book_ask_for_what_the_playground_has():
    pages = {page for page, _ in LINKS}
    assert {"tab01_decision_head_and_final_mlp", "does_the_head_decide"} <= pages
    for _, link in LINKS:
        held = dict(parse_qsl(html.unescape(link).replace("+", "%2B"), strict_parsing=True))
        group, run = held["run"].split("/")
        assert int(run) in playground.CHOSEN[group]
        assert 0 <= sum(map(int, held["sum"].split("+"))) <= 999
        assert held.keys() & {"do", "line"}
        if "do" in held:
            assert Ablation.from_json(held["do"]).targets(catalogue.load(group).config)


def test_what_the_page_says_about_its_links_is_so():
    """The answer to 352 + 271 that each of the links under *More to try* shows."""
    page = (ROOT / "book" / "playground.md").read_text()
    answers = []
    for link in re.findall(r'href="#(run=[^"]*)', page):
        held = dict(parse_qsl(html.unescape(link), strict_parsing=True))
        assert held["sum"] == "352+271"
        group, run = held["run"].split("/")
        model = catalogue.load(group).model(int(run))
        hook = Ablation.from_json(held["do"]).hook(model) if "do" in held else no_hook
        coordinates = {}
        for part in held["line"].split(",") if "line" in held else []:
            line, _, value = part.partition(":")
            coordinates[line] = float(value)
        hold = playground.coordinate_hook(model, coordinates)
        answers.append(answer(model, 352, 271, hook, hold))
    # One sum without a carry, one run without its head, one carry held at 0, one held at 1 with no
    # MLP to add it, and a nine held at 0 in a run whose carries lie where nines do.
    assert answers == ["523", "523", "523", "523", "523"]


@pytest.mark.machine
def test_the_first_sum_shows_what_the_decision_head_and_the_final_mlp_do():
    """In the run that pages open with, each part costs a digit: one too large, one too small.

    In 352 + 271 the tens make twelve, so that the hundreds receive a carry and the tens do not.
    """
    a, b = playground.FIRST_SUM
    group, run = next(iter(playground.CHOSEN)), 0
    main = (ROOT / "playground" / "main.js").read_text()
    assert f'INITIAL = /** @type {{any}} */ ({{ run: "{group}/{run}", sum: [{a}, {b}]' in main
    live = (ROOT / "playground" / "live.js").read_text()
    assert f"let sum = /** @type {{Sum}} */ ([{a}, {b}])" in live
    opened = parameters(ROOT / "notebooks" / "start_here.ipynb")
    assert [opened[name] for name in ("group", "run", "a", "b")] == [group, run, a, b]

    model = catalogue.load(group).model(run)
    carry_in = adder.schoolbook(torch.tensor([a]), torch.tensor([b]), 3).carry_in
    assert carry_in[0].tolist() == [1, 0, 0]
    last = model.config.layers - 1
    head = Ablation(heads={(last, measure.decision_head(model))})
    assert answer(model, a, b) == str(a + b)
    assert answer(model, a, b, head.hook(model)) == str(a + b + 10)
    assert answer(model, a, b, Ablation(mlps={last}).hook(model)) == str(a + b - 100)


STEPPER = "document.getElementById('pg-stepper').textContent"
DIGITS = "document.getElementById('pg-digits').textContent"
CHIP = "document.querySelectorAll('#pg-chips button')[{}]"
PART = (
    "[...document.querySelectorAll('.pg-part')]"
    ".find((x) => x.querySelector('b').textContent === '{}')"
)
SPOKEN = "document.getElementById('pg-spoken').textContent"


def show(browser, fragment="", width=1400):
    browser.open(PLAYGROUND.as_uri() + fragment, width)
    browser.wait(
        "document.getElementById('pg-foot') && document.getElementById('pg-foot').textContent", 20
    )


def type_into(browser, field, text):
    browser.run(
        f"{{ const field = document.getElementById('{field}'); field.focus();"
        f" field.value = {json.dumps(text)};"
        " field.dispatchEvent(new Event('input', { bubbles: true })); field.blur(); }"
    )


@needs_site
def test_a_reader_types_a_sum_and_takes_a_head_out(browser):
    show(browser)
    type_into(browser, "pg-a", "261")
    type_into(browser, "pg-b", "332")
    browser.wait(f"{SPOKEN}.startsWith('261 + 332 = 593, correct.')")
    browser.run(f"{PART.format('head 1:0')}.focus()")
    browser.press("Enter")
    browser.wait("document.getElementById('pg-call').textContent === 'Ablation(heads={(1, 0)})'")
    held = browser.run("new URLSearchParams(location.hash.slice(1)).get('do')")
    part = Ablation.from_json(held)
    assert part == Ablation(heads={(1, 0)})
    model = catalogue.load(MAIN).model(0)
    digits = answer(model, 261, 332, part.hook(model))
    assert browser.run(SPOKEN).startswith(f"261 + 332 = {digits}")
    browser.run("document.getElementById('pg-hundred').click()")
    browser.wait("/^100 random sums/.test(document.getElementById('pg-counts').textContent)")
    controls = "[...document.querySelectorAll('.pg :is(button, input, select)')]"
    has_name = "x.textContent.trim() || x.ariaLabel || (x.labels && x.labels.length)"
    assert browser.run(f"{controls}.filter((x) => !({has_name})).map((x) => x.outerHTML)") == []


PARTS_DONE = [
    MeanAblation(heads={(1, 0)}, positions=(7, 8)),
    Ablation(skips={0}) | Patch(heads={(1, 1)}, source=(261, 332)),
]


@needs_site
@pytest.mark.parametrize("part", PARTS_DONE, ids=lambda part: type(part).__name__)
def test_the_address_and_the_copied_python_are_the_same_intervention(browser, capsys, part):
    """On a phone, where the link shows its run and its frame, too."""
    show(browser, f"#run={MAIN}/2&sum=345+278&do={part.to_json()}&frame=5", 400)
    assert browser.run("document.getElementById('pg-run').value") == f"{MAIN}/2"
    assert browser.run("document.getElementById('pg-stepper').textContent").startswith("5 of 7")
    held = browser.run("new URLSearchParams(location.hash.slice(1)).get('do')")
    assert Patch.from_json(held) == part
    browser.run("navigator.clipboard.writeText = () => Promise.reject()")  # it is shown instead
    browser.run("document.getElementById('pg-copy').click()")
    code = browser.wait("document.getElementById('pg-python').textContent")
    namespace: dict[str, object] = {}
    exec(code, namespace)
    assert namespace["intervention"] == part
    digits = "".join(map(str, json.loads(capsys.readouterr().out)))
    assert re.match(rf"345 \+ 278 = {digits}\D", browser.run(SPOKEN))


@needs_site
@pytest.mark.parametrize(
    ("field", "text", "message"),
    [("a", "999", "choose a sum up to"), ("b", "", "is not a sum")],
)
def test_a_bad_number_is_a_line_beside_it_and_greys_the_answer(browser, field, text, message):
    show(browser)
    type_into(browser, f"pg-{field}", text)
    describing_id = f"document.getElementById('pg-{field}').getAttribute('aria-describedby')"
    described = f"document.getElementById({describing_id})"
    assert message in browser.run(f"{described}.textContent")
    assert browser.run(f"{described}.offsetHeight") > 0
    assert browser.run(f"document.getElementById('pg-{field}').ariaInvalid") == "true"
    assert browser.run(SPOKEN) == "No answer yet: what is grey is still about 352 + 271."
    style = "getComputedStyle(document.getElementById('pg-digits'))"
    assert browser.run(f"[{style}.opacity, {style}.fontWeight]") == ["0.4", "400"]
    type_into(browser, f"pg-{field}", "100")
    assert browser.run(SPOKEN).endswith("Now switch off a part, or move a carry.")
    assert browser.run(f"[{style}.opacity, {style}.fontWeight]") == ["1", "700"]


@needs_site
def test_the_page_opens_on_a_sum_and_a_click_changes_a_digit(browser):
    """Nothing is off at first; each chip, by itself, makes a digit too large or too small."""
    show(browser)
    assert browser.run(DIGITS) == "623"
    assert browser.run("document.querySelectorAll('#pg-page [aria-pressed=true]').length") == 0
    names = browser.run(
        "[...document.querySelectorAll('#pg-chips button')].map((x) => x.innerText)"
    )
    assert names == ["decision head (1:0)", "final MLP (MLP 1)"]
    wrong = "[...document.querySelectorAll('#pg-digits span')].map((x) => x.className)"
    outcomes = {0: ("633", 1, "pg-one-too-large"), 1: ("523", 0, "pg-one-too-small")}
    for chip, (digits, column, name) in outcomes.items():
        browser.run(f"{CHIP.format(chip)}.click()")
        browser.wait(f"{DIGITS} === '{digits}'")
        classes = browser.run(wrong)
        assert [i for i, x in enumerate(classes) if name in x] == [column]
        assert sum(map(bool, classes)) == 1
        browser.run(f"{CHIP.format(chip)}.click()")
        browser.wait(f"{DIGITS} === '623'")


@needs_site
@pytest.mark.parametrize("run", [f"{MAIN}/4", f"{ONE_LAYER}/0"])
def test_the_panel_has_the_parts_of_the_run(browser, run):
    """Every part of each layer has its button once, and the decision head has its name."""
    show(browser, f"#run={run}")
    group, number = run.split("/")
    model = catalogue.load(group).model(int(number))
    last = model.config.layers - 1
    layers = range(model.config.layers)
    heads = [f"head {layer}:{head}" for layer in layers for head in range(model.config.heads)]
    parts = browser.run("[...document.querySelectorAll('.pg-part b')].map((x) => x.textContent)")
    assert sorted(parts) == sorted([*heads, *(f"MLP {layer}" for layer in layers)])
    assert browser.run("document.querySelectorAll('.pg-skip').length") == 2 * len(layers)
    decision = f"head {last}:{measure.decision_head(model)}"
    parts = "[...document.querySelectorAll('.pg-part')]"
    deciding = f"{parts}.filter((x) => /decision/.test(x.innerText))"
    assert browser.run(f"{deciding}.map((x) => x.querySelector('b').textContent)") == [decision]
    sliders = browser.run("document.querySelectorAll('#pg-line input').length")
    assert sliders == (0 if model.config.layers == 1 else 4)
    if model.config.layers == 1:
        assert "No line was measured" in browser.run(
            "document.getElementById('pg-line').textContent"
        )


@needs_site
def test_a_slider_moves_the_carry_and_marks_where_the_digit_changes(browser, capsys):
    """The digit changes at the mark, as PyTorch's does; the copied Python gives the same answer."""
    show(browser, f"#run={MAIN}/2&sum=352+271")
    sentence = browser.run("document.getElementById('pg-line-hundreds-said').textContent")
    match = re.match(r"The hundreds digit is 5 up to (0\.\d\d), then 6\.", sentence)
    assert match, sentence
    flip = float(match[1])
    left = "document.querySelectorAll('#pg-line .pg-strip span')[1].getBoundingClientRect().left"
    strip = "document.querySelector('#pg-line .pg-strip').getBoundingClientRect()"
    share = browser.run(f"({left} - {strip}.left) / {strip}.width")
    assert share == pytest.approx((flip + 0.5) / 2, abs=0.01)
    model = catalogue.load(MAIN).model(2)
    for value in (round(flip - 0.02, 2), round(flip + 0.02, 2)):
        browser.run(
            "{ const slider = document.getElementById('pg-line-hundreds');"
            f" slider.value = '{value}'; slider.dispatchEvent(new Event('input')); }}"
        )
        digits = answer(model, 352, 271, playground.coordinate_hook(model, {"hundreds": value}))
        assert digits == ("523" if value < flip else "623")
        browser.wait(f"{DIGITS} === '{digits}' && location.hash.includes('line=hundreds:{value}')")
        browser.run("navigator.clipboard.writeText = () => Promise.reject()")  # it is shown instead
        browser.run("document.getElementById('pg-copy').click()")
        code = browser.wait("document.getElementById('pg-python').textContent")
        exec(code, {})
        assert "".join(map(str, json.loads(capsys.readouterr().out))) == digits
    browser.run("document.getElementById('pg-reset').click()")
    browser.wait("!location.hash.includes('line=')")


@needs_site
def test_a_second_run_answers_beside_the_first_with_the_matching_parts_changed(browser):
    """The decision heads of runs 0 and 4 have different numbers; coordinates are held in both."""
    models = [catalogue.load(MAIN).model(run) for run in (0, 4)]
    heads = [measure.decision_head(model) for model in models]
    assert heads[0] != heads[1]

    def answers(*parts: Ablation) -> list[str]:
        texts = []
        for model, part in zip(models, parts, strict=True):
            hook, hold = part.hook(model), playground.coordinate_hook(model, {"hundreds": 0.3})
            texts.append(f"352 + 271 = {answer(model, 352, 271, hook, hold)}")
        return texts

    def are_shown(texts: list[str]) -> str:
        places = ("pg-spoken", "pg-spoken-2")
        return " && ".join(
            f"document.getElementById('{place}').textContent.startsWith('{text}')"
            for place, text in zip(places, texts, strict=True)
        )

    off = [Ablation(heads={(1, head)}) for head in heads]
    changed = f"do={off[0].to_json()}&line=hundreds:0.3"
    show(browser, f"#run={MAIN}/0&sum=352+271&beside={MAIN}/4&{changed}")
    browser.wait(are_shown(answers(*off)))
    assert browser.run("document.querySelectorAll('.pg-second .pg-map[aria-pressed=true]').length")
    assert browser.run("document.getElementById('pg-line-hundreds-2').value") == "0.3"
    second = "[...document.querySelectorAll('.pg-second .pg-part')]"
    browser.run(f"{second}.find((x) => /decision/.test(x.innerText)).focus()")
    browser.press("Enter")  # in the second run's panel: the first run's is on again, too
    browser.wait(are_shown(answers(Ablation(), Ablation())))
    assert "do=" not in browser.run("location.hash")
    browser.run("document.getElementById('pg-hundred').click()")
    browser.wait("/^100 random sums/.test(document.getElementById('pg-counts-2').textContent)")
    browser.run(
        "{ const field = document.getElementById('pg-beside');"
        " field.value = ''; field.dispatchEvent(new Event('change')); }"
    )
    browser.wait("!location.hash.includes('beside')")
    assert browser.run("document.querySelectorAll('.pg-part').length") == 6


@needs_site
@pytest.mark.parametrize(
    ("fragment", "field", "message"),
    [
        ("#run=n9/0", "run", "is not a run of this page"),
        ("#beside=n9/0", "beside", "is not a run of this page"),
        ('#do={"kind":"Ablation","heads":[[7,0]]}', "sum", "This run has no heads"),
        ("#run=n1_s0.3_w0.2/0&line=tens:1", "sum", "No line was measured"),
    ],
)
def test_a_bad_address_is_a_line_and_the_page_stays(browser, fragment, field, message):
    show(browser, fragment)
    assert message in browser.run(f"document.getElementById('pg-line-{field}').textContent")
    assert browser.run(SPOKEN).startswith("352 + 271 = 623, correct.")


@pytest.mark.machine
@needs_site
def test_the_frames_have_the_numbers_of_the_run(browser):
    model = catalogue.load(MAIN).model(2)
    part = Ablation(heads={(1, 0)})
    tokens = sums.encode(torch.tensor([345]), torch.tensor([278]), model.config.layout)
    _, cache = model.run_with_cache(tokens, hook=part.hook(model))
    answer = list(model.config.layout.answer)
    show(browser, f"#run={MAIN}/2&sum=345+278&do={part.to_json()}")
    frames = []
    for number in range(1, 8):
        frames.append(browser.wait(f"(({STEPPER}.startsWith('{number} of 7')) && {STEPPER})"))
        browser.run("document.getElementById('pg-frames').focus()")
        browser.press("ArrowRight")
    first, last = (cache[f"blocks.{layer}.attn.pattern"][0] for layer in (0, 1))
    partners = [
        first[:, query, key].max()
        for query, key in [(i, i + 4) for i in range(3)] + [(i + 4, i) for i in range(3)]
    ]
    assert f"with {100 * max(partners):.1f}% of its attention" in frames[1]
    other_keys = last[:, answer].clone()
    other_keys[:, range(3), answer] = 0
    assert f"with {100 * other_keys.max():.1f}% of its attention" in frames[3]
    stream = cache["blocks.1.resid_mid"]
    before = model.unembed(model.norm(stream))[0, answer].argmax(-1)
    active = (cache["blocks.1.mlp.post"][0, answer] > 0).sum(-1).tolist()
    after = cache["logits"][0, answer]
    digits = ["".join(map(str, x.tolist())) for x in (before, after.argmax(-1))]
    counts = f"{active[0]}, {active[1]} and {active[2]} of"
    assert f"would be {digits[0]}; after it, it is {digits[1]}. {counts}" in frames[5]
    assert f"{100 * after.softmax(-1).max(-1).values[0]:.1f}%" in frames[6].replace(
        "100%", "100.0%"
    )


@needs_site
def test_the_slider_over_training_shows_what_was_recorded(browser):
    browser.open(TRAINING.as_uri() + f"#run={ONE_LAYER}/3&epoch=300", 400)
    browser.wait(f"document.getElementById('pg-spoken') && {SPOKEN}", 20)
    browser.run("document.getElementById('pg-epoch').focus()")
    browser.press("ArrowRight")
    browser.wait(f"{SPOKEN}.startsWith('Epoch 305:')")
    assert browser.run("location.hash") == f"#run={ONE_LAYER}/3&epoch=305"
    expected = load_curves(ONE_LAYER)["pattern"][3, 304].round(2).ravel()
    squares = "[...document.querySelectorAll('#pg-maps rect[fill-opacity]')]"
    opacities = browser.run(f"{squares}.map((x) => Number(x.getAttribute('fill-opacity')))")
    assert opacities == pytest.approx(expected.tolist(), abs=0.0006)
    assert browser.run("document.documentElement.scrollWidth") <= 400
    browser.run("location.hash = '#run=n1_s0.3_w0.2/9&epoch=0'")
    browser.wait("/not a run.*not an epoch/.test(document.getElementById('pg-line').textContent)")


@needs_site
def test_the_slider_of_figure_5_shows_the_ablated_accuracies(browser):
    browser.open(
        (TRAINING.parent / "fig05_mlp_evolution.html").as_uri() + f"#run={MAIN}/2&epoch=120"
    )
    browser.wait(f"document.getElementById('pg-spoken') && {SPOKEN}", 20)
    heights = browser.run(
        "[...document.querySelectorAll('.pg-cell')].map((x) => parseFloat(x.textContent))"
    )
    expected = 100 * load_curves(MAIN)["test_ablated_accuracy"][2, 119]
    assert heights == pytest.approx(expected.ravel().tolist(), abs=0.56)
