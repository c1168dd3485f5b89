"""The author's recordings and the ledger's rows that come from them, or from surveys of our own."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from carry_core import author
from carry_core.errors import BadInput
from carry_core.findings.survey import Evidence
from carry_core.ledger import billions, claims, quantities
from carry_core.llm import prompts, recordings, survey
from carry_core.llm.model import Size, most_frequent, parse_heads
from carry_core.llm.prompts import Answers
from tests.test_llm_answers import naive_carrying


@pytest.fixture
def release(shared, data, tmp_path):
    """The released recordings of Llemma that lie beside the repository, imported."""
    (tmp_path / "clone").mkdir()
    (tmp_path / "clone" / "Llemma 7B").symlink_to(shared / "CarryingTransformers" / "Llemma 7B")
    author.import_release(tmp_path / "clone", data / "author")
    return data


def of(name: str, source: str = "author"):
    return billions.find(name, Evidence(source))


def printed(name: str) -> float:
    return claims.claims()[name].paper


def test_llemma_is_as_the_paper_prints(release, shared):
    claimed = {c.id: c for c in claims._read(Path(__file__).parent.parent / "data" / "claims.yml", 0).values()}
    for name in ("tab2/llemma/accuracy", "tab2/llemma/staircase_heads", "llm/llemma/carry_mistakes"):
        claim = claimed[name]
        assert abs(of(name).value - claim.paper) <= claim.unit / 2, name
    found = recordings.recording("llemma")
    assert found.accuracy == found.answers.accuracy == 0.867
    assert found.answers.right.tolist() == found.correct
    assert (int(found.answers.carrying.sum()), int((~found.answers.right).sum())) == (85, 133)
    assert torch.equal(found.answers.pairs, prompts.draw(1000))
    assert found.counts.sum() == 1000 * (4 + found.answers.template.tokens)
    assert most_frequent(found.counts)[3:5] == found.frequent_heads[3:5] == ((13, 23), (15, 15))
    for name in ("tab2/llemma/ablated_accuracy/0", "tab2/llemma/addition_heads"):
        with pytest.raises(BadInput, match="carry llm EleutherAI/llemma_7b --ablate 13:23,15:15 --pairs 3 --out"):
            of(name)
    with pytest.raises(BadInput, match="No recording of zephyr at hand: expected `carry import-author DIR`"):
        of("tab2/zephyr/accuracy")


def record(data: Path, key: str, template: str, n_replies: int) -> None:
    """A recording with the layout of the release: forty prompts, every fourth answer one too small."""
    folder = data / "author" / "llm"
    folder.mkdir(parents=True, exist_ok=True)
    pairs = prompts.draw(40).tolist()
    values = [a + b - (i % 4 == 0) for i, (a, b) in enumerate(pairs)]
    sums = [f" {a} + {b} = " if template == "alpaca" else "" for a, b in pairs]
    texts = {
        "prompts": [[prompts.TEMPLATES[template].prompt(a, b)] for a, b in pairs],
        "correct": [i % 4 != 0 for i in range(40)],
        "accuracy": 0.75,
        "generations": [f"{text}{value}\n" for text, value in zip(sums, values, strict=True)][:n_replies],
    }
    (folder / f"{key}.json").write_text(json.dumps(texts))
    wins = torch.zeros(32, 32)
    wins[3, 4], wins[6, 23] = 5, 7
    inputs = torch.tensor([[1, 9, *map(int, f"{a}{b}"), 9] for a, b in pairs])
    maps = {"attention_mean": torch.rand(8, 17, 17), "attention_std": torch.rand(8, 17, 17)}
    save_file({"wins": wins, "inputs": inputs, **maps}, folder / f"{key}.safetensors")


def test_alpacas_and_zephyrs_files_are_read_by_the_same_code(data):
    record(data, "zephyr", "bare", 40)
    record(data, "alpaca", "alpaca", 10)
    (data / "author" / "llm" / "alpaca_ablated.json").write_text(json.dumps({"accuracy": 0.17}))
    assert of("tab2/zephyr/accuracy").value == 0.75
    assert of("tab2/zephyr/staircase_heads").value == 2
    pairs = prompts.draw(40).tolist()
    carrying = [naive_carrying(a, b, a + b - 1) for a, b in pairs[::4]]
    assert of("llm/zephyr/carry_mistakes").value == sum(carrying) / len(carrying)
    assert of("tab2/alpaca/accuracy").how == "As recorded; 10 of 40 generations were released."
    assert of("tab2/alpaca/ablated_accuracy/0").value == 0.17
    first = [str(a + b - (i % 4 == 0))[0] == str(a + b)[0] for i, (a, b) in enumerate(pairs[:10])]
    assert of("llm/alpaca/first_position_accuracy").value == sum(first) / 10
    with pytest.raises(BadInput, match="Needs all generations; 10 were released"):
        of("llm/alpaca/carry_mistakes")


def test_a_recording_that_contradicts_itself_or_is_damaged(data):
    record(data, "zephyr", "bare", 40)
    path = data / "author" / "llm" / "zephyr.json"
    text = json.loads(path.read_text())
    path.write_text(json.dumps(text | {"correct": [True] * 40}))
    with pytest.raises(BadInput, match="do not give the recorded verdicts"):
        of("tab2/zephyr/accuracy")
    for broken in ({"prompts": ["no sum"] * 40}, {"correct": [True]}, {"generations": [1]}):
        path.write_text(json.dumps(text | broken))
        with pytest.raises(BadInput, match="is damaged"):
            of("tab2/zephyr/accuracy")


# ---------------------------------------------------------------- surveys of our own


def planted(data: Path, key: str, ablated: list[tuple[str, str, int]]) -> None:
    """A survey of ten prompts; each ablation gets so many of them right."""
    pairs = prompts.draw(10)
    template = prompts.TEMPLATES[recordings.MODELS[key].template]
    size = Size(32, 32, 128)

    def answers(right: int) -> Answers:
        return Answers(pairs, tuple(str(a + b + (i >= right)) for i, (a, b) in enumerate(pairs.tolist())), template)

    wins = torch.zeros(14, 32, 32, dtype=torch.int64)
    wins[0, 13, 23], wins[1, 15, 15], wins[2, 15, 15] = 10, 9, 1
    found = survey.Survey(
        key,
        answers(9),
        wins,
        ((13, 23), (15, 15)),
        torch.zeros(2, 16, 16),
        torch.zeros(2, 16, 16),
        torch.zeros(32, 2, 5, 10, 6),
        torch.zeros(32, 2, 5, 6),
        torch.zeros(10, 5, dtype=torch.bool),
        tuple(survey.Ablated(parse_heads(pair, size), kind, answers(right)) for pair, kind, right in ablated),
        {},
    )
    found.save(data / "llm" / key / survey.FILE)


def test_rows_from_a_survey_of_our_own(data):
    planted(data, "llemma", [("13:23,15:15", "asked", 3), ("1:1,2:2", "frequent", 8), ("3:3,4:4", "random", 7)])
    assert of("tab2/llemma/accuracy", "ours").value == 0.9
    assert of("tab2/llemma/staircase_heads", "ours").value == 2
    assert of("tab2/llemma/ablated_accuracy/0", "ours").value == 0.3
    assert of("tab2/llemma/addition_heads", "ours").value == [[13, 23], [15, 15]]
    with pytest.raises(BadInput, match="Needs the weights of Zephyr 7B: `carry llm HuggingFaceH4/zephyr-7b-beta"):
        of("tab2/zephyr/accuracy", "ours")
    planted(data, "zephyr", [("17:25,17:26", "asked", 3), ("20:30,20:31", "asked", 4), ("1:1,2:2", "random", 9)])
    assert of("tab2/zephyr/ablated_accuracy/1", "ours").value == 0.4
    assert of("tab2/zephyr/addition_heads", "ours").value == printed_pairs("zephyr")
    planted(data, "zephyr", [])
    with pytest.raises(BadInput, match="is without 17:25,17:26"):
        of("tab2/zephyr/ablated_accuracy/0", "ours")
    with pytest.raises(BadInput, match="ablated no pairs"):
        of("tab2/zephyr/addition_heads", "ours")


def printed_pairs(key: str) -> list[list[list[int]]]:
    pairs = [[[int(x) for x in head.split(":")] for head in pair.split(",")] for pair in recordings.MODELS[key].pairs]
    return pairs if len(pairs) > 1 else pairs[0]


def test_the_finding_compares_with_random_pairs(data):
    def found():
        return quantities.find("finding/llm_heads", Evidence("ours"))

    with pytest.raises(BadInput, match="It needs 7B weights: `carry llm PATH_TO_ALPACA --template alpaca --ablate"):
        found()
    planted(data, "llemma", [("13:23,15:15", "asked", 3), ("1:1,2:2", "frequent", 8), ("3:3,4:4", "random", 7)])
    assert (found().value, dict(found().shows)) == (0.3, {1: True})
    planted(data, "zephyr", [("17:25,17:26", "asked", 6), ("3:3,4:4", "random", 2)])
    assert dict(found().shows) == {1: True, 2: False}
    with pytest.raises(BadInput, match="The author's release has no such runs"):
        quantities.find("finding/llm_heads", Evidence("author"))
