"""The pages' language model: its streams by planted geometry, and the data of the plots."""

import re
import socket

import pytest
import torch

from carry_core.errors import BadInput
from carry_core.files import ROOT
from carry_paper.llm import head_survey, prompts, recordings
from carry_paper.llm.prompts import Answers

pytestmark = pytest.mark.slow

BARE = prompts.TEMPLATES["bare"]
N = 400


@pytest.fixture
def planted() -> head_survey.Survey:
    """The leading axis is the carry after attention 1, the digit after MLP 1, noise elsewhere."""
    pairs = prompts.draw(N)
    generator = torch.Generator().manual_seed(0)
    points = 0.1 * torch.randn(3, 2, 5, N, 6, generator=generator)
    for output in range(5):
        digit, carry_in = prompts.digit_and_carry(pairs, output)
        points[1, 0, output, :, 0] += carry_in
        points[1, 1, output, :, 0] += 3 * digit
    spelled = torch.ones(N, 5, dtype=torch.bool)
    spelled[:, 4] = False
    spelled[:350, 3] = False
    points[:, :, 3, :350] = float("nan")
    wins = torch.zeros(14, 3, 4, dtype=torch.int64)
    wins[0, 1, 2], wins[5, 2, 0] = 7, 3
    replies = tuple(str(a + b) for a, b in pairs.tolist())
    maps = torch.rand(2, 16, 16, generator=generator)
    share, answers = torch.full((3, 2, 5, 6), 1 / 6), Answers(pairs, replies, BARE)
    ablated = (
        head_survey.Ablated(((1, 2), (2, 0)), "frequent", Answers(pairs, ("0",) * N, BARE)),
        head_survey.Ablated(((0, 0), (0, 1)), "random", answers),
    )
    return head_survey.Survey(
        "planted", answers, wins, maps, 0.5 * maps, points, share, spelled, ablated, {}
    )


def test_streams_find_what_was_planted(planted):
    separations = planted.separations()
    assert separations.output.unique().tolist() == [0, 1, 2, 3]
    for _, rows in separations.groupby("output"):
        in_plane, pockets = (
            rows[measure].tolist()
            for measure in ("carry-in, on one of two axes", "nearest centre is the digit’s")
        )
        assert len(in_plane) == 6
        assert in_plane[2] > 0.99
        assert max(in_plane[i] for i in (0, 1, 4, 5)) < 0.75
        assert pockets[3] > 0.99
        assert max(pockets[i] for i in (0, 1, 4, 5)) < 0.5
    assert [a.answers.accuracy for a in planted.targeted] == [0.0]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"source": "authr"}, "Unknown source 'authr': expected 'ours' or 'author'"),
        (
            {"group": "n9"},
            "Unknown language model 'n9' from ours: expected one of default, small, alpaca",
        ),
        ({"source": "author", "model": "/some/where"}, "expected None for source='author'"),
        ({"n_examples": 3}, "n_examples=3: expected a whole number of prompts from 100"),
        ({"n_pairs": 29}, "n_pairs=29: expected a whole number of pairs from 0 to 28"),
    ],
)
def test_wrong_parameters_are_one_line(arguments, complaint):
    with pytest.raises(BadInput, match=re.escape(complaint)):
        recordings.load(**{"source": "ours", "group": "default"} | arguments)


def test_the_small_model_is_small_and_adds_without_a_network(monkeypatch):
    def refuse(*args):
        raise AssertionError("something wanted the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert (
        sum(path.stat().st_size for path in (ROOT / "data" / "llm" / "small").iterdir()) < 8 * 2**20
    )
    recording = recordings.load("ours", "default", n_examples=100, n_pairs=1)
    assert recording.answers.accuracy >= 0.95
    assert [a.kind for a in recording.ablated] == ["frequent", "random"]
