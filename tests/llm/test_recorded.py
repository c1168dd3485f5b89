"""The author's recordings and the ledger's rows that come from them, or from surveys of our own."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from carry_core.errors import BadInput
from carry_paper.findings.evidence import Evidence
from carry_paper.ledger import claims, language_models, registry
from carry_paper.ledger.measuring import Measuring, quantities
from carry_paper.llm import head_survey, prompts, recordings
from carry_paper.llm.head_survey import Survey
from carry_paper.llm.model import Size, parse_heads
from carry_paper.llm.prompts import Answers
from carry_paper.llm.staircases import most_frequent
from tests.helpers.measured import measured


def of(name: str, source: str = "author"):
    entry = registry.entry(name)
    (quantity,) = quantities([entry])
    by_key = Measuring(Evidence(source), [quantity]).fields(quantity, [*quantity.places, ""])
    (fields,) = by_key.values()
    return SimpleNamespace(**fields)


@pytest.fixture
def llemma(released, data) -> Path:
    """The author's recordings, imported; the texts of Llemma's."""
    shutil.copytree(released[0] / "llm", data / "author" / "llm")
    return data / "author" / "llm" / "llemma.json"


def test_llemma_is_as_the_paper_prints(llemma):
    for name in (
        "tab2/llemma/accuracy",
        "tab2/llemma/staircase_heads",
        "llm/llemma/carry_mistakes",
    ):
        claim = claims.claims()[name]
        assert abs(of(name).value - claim.paper) <= claim.unit / 2, name
    recording = recordings.recording("llemma")
    assert recording.accuracy == recording.answers.accuracy == 0.867
    assert recording.answers.right.tolist() == recording.correct
    assert (int(recording.answers.carrying.sum()), int((~recording.answers.right).sum())) == (
        85,
        133,
    )
    assert torch.equal(recording.answers.pairs, prompts.draw(1000))
    assert recording.counts.sum() == 1000 * (4 + recording.answers.template.tokens)
    assert (
        most_frequent(recording.counts)[3:5]
        == recording.frequent_heads[3:5]
        == ((13, 23), (15, 15))
    )
    for name in ("tab2/llemma/ablated_accuracy/0", "tab2/llemma/addition_heads"):
        with pytest.raises(
            BadInput, match="carry llm EleutherAI/llemma_7b --ablate 13:23,15:15 --pairs 3 --out"
        ):
            of(name)


def test_a_recording_that_contradicts_itself_or_is_damaged(llemma):
    text = json.loads(llemma.read_text())
    llemma.write_text(json.dumps(text | {"correct": [True] * 1000}))
    with pytest.raises(BadInput, match="do not give the recorded verdicts"):
        of("tab2/llemma/accuracy")
    llemma.write_text(json.dumps(text | {"generations": [1]}))
    with pytest.raises(BadInput, match="is damaged"):
        of("tab2/llemma/accuracy")


def planted(data: Path, key: str, ablated: list[tuple[str, str, int]]) -> None:
    """A survey of ten prompts; each ablation gets so many of them right."""
    pairs = prompts.draw(10)
    template = prompts.TEMPLATES[recordings.MODELS[key].template]
    size = Size(32, 32)

    def answers(right: int) -> Answers:
        return Answers(
            pairs,
            tuple(str(a + b + (i >= right)) for i, (a, b) in enumerate(pairs.tolist())),
            template,
        )

    wins = torch.zeros(14, 32, 32, dtype=torch.int64)
    wins[0, 13, 23], wins[1, 15, 15], wins[2, 15, 15] = 10, 9, 1
    without = tuple(
        head_survey.Ablated(parse_heads(pair, size), kind, answers(right))
        for pair, kind, right in ablated
    )
    store(data, key, answers(9), wins, torch.zeros(2, 16, 16), without)


def store(data: Path, name: str, answers: Answers, wins, attention, ablated=()) -> None:
    """Store a survey without streams."""
    n_layers, n_prompts = wins.shape[1], len(answers.replies)
    Survey(
        name,
        answers,
        wins,
        attention,
        torch.zeros_like(attention),
        torch.zeros(n_layers, 2, 5, n_prompts, 0),
        torch.zeros(n_layers, 2, 5, 0),
        torch.zeros(n_prompts, 5, dtype=torch.bool),
        ablated,
        {},
    ).save(data / "llm" / name / head_survey.FILE)


def test_rows_from_a_survey_of_our_own(data):
    planted(
        data,
        "llemma",
        [("13:23,15:15", "asked", 3), ("1:1,2:2", "frequent", 8), ("3:3,4:4", "random", 7)],
    )
    assert of("tab2/llemma/accuracy", "ours").value == 0.9
    assert of("tab2/llemma/staircase_heads", "ours").value == 2
    assert of("tab2/llemma/ablated_accuracy/0", "ours").value == 0.3
    assert of("tab2/llemma/addition_heads", "ours").value == [[13, 23], [15, 15]]
    with pytest.raises(
        BadInput, match="Needs the weights of Zephyr 7B: `carry llm HuggingFaceH4/zephyr-7b-beta"
    ):
        of("tab2/zephyr/accuracy", "ours")
    planted(data, "zephyr", [])
    with pytest.raises(BadInput, match="is without 17:25,17:26"):
        of("tab2/zephyr/ablated_accuracy/0", "ours")
    with pytest.raises(BadInput, match="ablated no pairs"):
        of("tab2/zephyr/addition_heads", "ours")


def test_the_finding_compares_with_random_pairs(data):
    def found():
        return measured("finding/llm_heads", Evidence("ours"))

    with pytest.raises(
        BadInput, match="It needs 7B weights: `carry llm PATH_TO_ALPACA --template alpaca --ablate"
    ):
        found()
    planted(
        data,
        "llemma",
        [("13:23,15:15", "asked", 3), ("1:1,2:2", "frequent", 8), ("3:3,4:4", "random", 7)],
    )
    assert (found().runs, found().shows) == ({"llemma": 0.3}, {"llemma": True})
    planted(data, "zephyr", [("17:25,17:26", "asked", 6), ("3:3,4:4", "random", 2)])
    assert found().shows == {"llemma": True, "zephyr": False}
    with pytest.raises(BadInput, match="The author's release has no such runs"):
        measured("finding/llm_heads", Evidence("author"))


# ---------------------------------------------------------------- models that cannot add


def planted_control(data: Path, name: str, winners: int, right: int) -> None:
    """A survey of 100 heads, some of which win a cell, and of 1,000 sums, some of them right."""
    pairs = prompts.draw(1000)
    replies = tuple(str(a + b + (i >= right)) for i, (a, b) in enumerate(pairs.tolist()))
    wins = torch.zeros(14, 10, 10, dtype=torch.int64)
    wins[3].view(-1)[:winners] = 10
    wins[7, 0, 0] += 10 * (winners - 2)  # as many as all others but one
    attention = torch.full((2, 16, 16), 0.05)
    attention[:, 10, 10] = 0.9  # no cell of the search
    attention[1, 8, 3] = 0.4  # the third digit of b attends to that of a
    store(data, name, Answers(pairs, replies, prompts.TEMPLATES["bare"]), wins, attention)


def test_a_model_that_cannot_add_is_compared_with_models_that_do(data):
    def found(evidence="ours"):
        return measured("beyond/llm_control", Evidence(evidence))

    with pytest.raises(BadInput, match="It needs a model that cannot add: `make llm`."):
        found()
    with pytest.raises(BadInput, match="The author's release has no model that cannot add."):
        found("author")
    for winners, right, shows in ((16, 27, True), (17, 27, False), (16, 28, None)):
        planted_control(data, "smollm2", winners, right)
        row = found()
        assert (row.runs, row.shows) == ({"smollm2": winners / 100}, {"smollm2": shows})


def test_a_network_with_random_weights_is_measured_by_each_seed(data):
    for i, name in enumerate(recordings.RANDOM_WEIGHTS):
        planted_control(data, name, 10 * (i + 1), right=0)
    row = measured("beyond/llm_control_random", Evidence("ours"))
    assert [*row.runs.values()] == [0.1, 0.2, 0.3]
    assert [*row.shows.values()] == [True, False, False]


def test_the_search_is_described_by_how_many_heads_win_and_how_clearly(data):
    planted_control(data, "smollm2", winners=20, right=3)
    assert language_models.staircases(recordings.control("smollm2")) == {
        "value": 0.2,
        "winners": 20,
        "heads": 100,
        "right": 3,
        "prompts": 1000,
        "half": 1,
        "attention": pytest.approx(0.4),
    }


def test_what_is_measured_of_language_models_is_not_measured_again(data):
    planted_control(data, "smollm2", winners=20, right=3)
    (quantity,) = quantities([registry.entry("beyond/llm_control")])
    measuring = Measuring(Evidence("ours"), [quantity])
    table = measuring.rows()
    assert measuring.missing(table) == {}
    assert measuring.missing(table[:0]) == {quantity: "not measured"}
    assert measuring.missing(table.assign(code="0")) == {quantity: "stale: other code measured it"}
