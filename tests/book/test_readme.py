"""The README and the pages of prose name what exists, and their numbers are the code's."""

import re

import nbformat
import outputs
import pytest

import carry_core
from carry_core.files import ROOT
from carry_core.model import POINTS, ModelConfig
from carry_core.sums import n_sums
from carry_train import loop, stacked
from carry_train.groups import GROUPS, MAIN, RECIPES
from tests.helpers.printed import assert_same_words

pytestmark = pytest.mark.machine

README = (ROOT / "README.md").read_text()


def book(name: str) -> str:
    return (ROOT / "book" / name).read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "prints"),
    [
        ("book/reading.md", r"tensor\(\[6, 2, 3\]\) tensor\(\[5, 2, 3\]\)"),
        ("data/runs/README.md", r"423\n$"),
    ],
)
def test_the_examples_run(capsys, monkeypatch, file, prints):
    monkeypatch.chdir(ROOT)
    examples = re.findall(r"```python\n(.*?)```", (ROOT / file).read_text(), re.DOTALL)
    assert examples
    names: dict[str, object] = {}
    for example in examples:
        exec(compile(example, file, "exec"), names)
    assert re.match(prints, capsys.readouterr().out, re.DOTALL)


def test_the_readme_s_example_prints_what_it_shows(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # it draws into a file
    (example, output), *more = re.findall(
        r"```python\n(.*?)```\n\n```\n(.*?)```", README, re.DOTALL
    )
    assert not more
    exec(compile(example, "README.md", "exec"), {})
    assert_same_words(capsys.readouterr().out, output)


def test_the_front_door_is_what_the_page_says():
    page = book("api.md")
    (summary,) = re.findall(r":nosignatures:\n\n((?:   \w+\n)+)", page)
    exported = {name for name, value in vars(carry_core).items() if callable(value)}
    assert set(summary.split()) == exported
    documented = re.findall(r"^\.\. auto(?:function|class):: (\w+)$", page, re.MULTILINE)
    assert set(documented) == exported
    points = re.findall(r"^\| `blocks\.\{l\}\.([\w.]+)` \| `([\w.{}]+)`", page, re.MULTILINE)
    assert [point for point, _ in points] == list(POINTS)
    for point, lens_name in points:
        assert ModelConfig().hook_name(lens_name.replace("{l}", "1")) == f"blocks.1.{point}"


def test_the_numbers_of_the_training_page_are_the_code_s():
    page, main = " ".join(book("training.md").split()), GROUPS[MAIN]
    quick, minute = RECIPES["quick"], RECIPES["minute"]
    for text in (
        f"| warm-up | none | {quick.warmup} steps, linear | {minute.warmup} steps, linear |",
        f"| none | none | the last {100 * minute.cooldown:.0f}% of the steps, linear |",
        f"| batch | {main.batch:,} sums | {main.batch:,} sums | {minute.batch} sums |",
        f"| {minute.steps:,} steps: {minute.steps * minute.batch / main.n_train:.1f} epochs at",
        f"| {RECIPES['paper'].epochs(main)} epochs | {quick.steps:,} steps,",
        f"rounded to whole epochs: {quick.epochs(main)} at",
        f"the unprimed one of six digits for {GROUPS['pad6_n2_s0.3_w0.2'].epochs:,} epochs",
        f"All {n_sums(3):,} sums",
        f"Batches of {main.batch},",
        f"rate is therefore {stacked.THRESHOLD}/65536",
    ):
        assert text in page
    rates = re.search(r"\| learning rate \| \$(.+?)\$ \| \$(.+?)\$ \| \$(.+?)\$ \|", page).groups()
    printed_rates = [
        float(re.sub(r"(.*?)(?: \\cdot )?10\^\{(.+)\}", lambda x: f"{x[1] or 1}e{x[2]}", rate))
        for rate in rates
    ]
    assert printed_rates == [recipe.rate for recipe in RECIPES.values()]
    assert loop.SAVE_EVERY == 15
    assert "saved every quarter of a minute" in page


def test_the_picture_is_the_one_of_table_1():
    notebook = nbformat.read(ROOT / "notebooks" / "tab01_decision_head_and_final_mlp.ipynb", 4)
    picture = re.search(r"\]\((book/[\w.]+)\)", README)[1]
    assert (ROOT / picture).read_bytes() == outputs.figure(notebook, "figure"), "run make outputs"


def test_what_a_reader_and_a_contributor_are_sent_to_exists():
    names = ("CONTRIBUTING.md", "data/runs/README.md")
    pages = "".join((ROOT / name).read_text(encoding="utf-8") for name in names)
    tree = README.partition("## Where things are")[2].split("```")[1]
    names = {
        *map("".join, re.findall(r"`([\w/]+/)`|\]\(([\w/]+\.\w+)\)", README)),
        *re.findall(r"`((?:\w+/)+\w+\.(?:py|md|yml))`", pages),
        *re.findall(r"\w+/|\w+\.py", tree),
    }
    assert len(names) > 20
    folders = [ROOT, ROOT / "carry_core", ROOT / "carry_paper"]
    missing = [name for name in names if not any((folder / name).exists() for folder in folders)]
    assert missing == []


def test_the_page_on_training_names_the_groups_that_lack_runs():
    lines = (ROOT / "book" / "training.md").read_text(encoding="utf-8").splitlines()
    (sentence,) = [line for line in lines if line.endswith("are incomplete.")]
    incomplete = []
    for name in GROUPS:
        by_paper = [*(ROOT / "data" / "runs" / name / "paper").glob("run*.safetensors")]
        if len(by_paper) != 6:
            incomplete.append(name)
    assert sorted(re.findall(r"`\w+n2_[^`]*`", sentence)) == sorted(f"`{x}`" for x in incomplete)
