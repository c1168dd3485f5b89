"""Surveys of tiny models: against the naive way, stopped and resumed, and refused."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM

from carry_core.errors import BadInput
from carry_paper.llm import head_survey, prompts, staircases
from carry_paper.llm.model import blocks, format_heads, inspect_model
from carry_paper.llm.staircases import most_frequent
from tests.helpers.llm_models import folder
from tests.helpers.tolerances import assert_close

pytestmark = pytest.mark.slow

BARE = prompts.TEMPLATES["bare"]
PLAN = {"count": 20, "batch": 6, "n_pairs": 2, "heads_to_ablate": (((0, 1), (2, 3)),)}


def run(model_folder, parts, **options):
    return head_survey.Surveyor(
        inspect_model(str(model_folder), BARE), parts, **PLAN | options
    ).run()


# A Llama-like model, and one whose projections are stored transposed.
TRIED = (("mistral", "grouped_digits"), ("gpt2", "bytes_and_threes"))


@pytest.fixture(scope="module", params=TRIED, ids=" ".join)
def model_folder(request, tmp_path_factory):
    """A model some of whose replies end early: its end is the third token that it writes."""
    path = folder(tmp_path_factory.mktemp("model"), *request.param)
    surveyor = head_survey.Surveyor(inspect_model(str(path), BARE), path, count=1)
    surveyor.model.generation_config.eos_token_id = int(
        surveyor._generate(surveyor._inputs(surveyor.pairs))[0][0, 2]
    )
    surveyor.model.generation_config.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def surveyor(model_folder, tmp_path_factory):
    return head_survey.Surveyor(
        inspect_model(str(model_folder), BARE), tmp_path_factory.mktemp("parts"), **PLAN
    )


@pytest.fixture(scope="module")
def plain_survey(surveyor):
    return surveyor.run()


def naive(model, tokenizer):
    """Replies, wins, attention between marked tokens and streams, by a whole pass a prompt."""
    n, replies, maps, streams = BARE.tokens, [], [], []
    wins = torch.zeros(4 + n, 3, 4, dtype=torch.int64)
    for a, b in prompts.draw(20).tolist():
        prompt = BARE.prompt(a, b)
        encoding = tokenizer(prompt, return_offsets_mapping=True)
        ids, place = (
            list(encoding["input_ids"]),
            prompts.locate(prompt, encoding["offset_mapping"], a, b),
        )
        length = len(ids)
        for _ in range(n):
            with torch.inference_mode():
                ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
            if ids[-1] == model.generation_config.eos_token_id:
                break
        replies.append(tokenizer.decode(ids[length:], skip_special_tokens=True))
        with torch.inference_mode():
            passed = model(torch.tensor([ids]), output_attentions=True, output_hidden_states=True)
        whole = torch.stack(passed.attentions)[:, 0]
        cells = [*zip(place.b, place.a, strict=True)] + [
            (place.last + j, place.b[0] + j) for j in range(n)
        ]
        for c, (row, column) in enumerate(cells):
            if row < len(ids) - 1:
                values = whole[:, :, row, column]
                # a saturated softmax can be equal in several heads
                first = (values == values.max()).nonzero()[0]
                wins[c, *first] += 1
        marked = [*place.marked, *range(length, length + staircases.N_MAPPED)]
        square = torch.full((3, 4, len(marked), len(marked)), float("nan"))
        for i, row in enumerate(marked):
            for j, column in enumerate(marked[: i + 1]):
                if row < len(ids) - 1:
                    square[:, :, i, j] = whole[:, :, row, column]
        maps.append(square)
        streams.append(
            torch.stack(passed.hidden_states)[1:, 0, length - 1 :][:, : len(ids) - length][:, :5]
        )
    return replies, wins, torch.stack(maps), streams


def test_a_survey_is_what_the_naive_way_gives(surveyor, plain_survey):
    """Attention and stream of every layer, one prompt at a time, unpadded, without a cache."""
    model = surveyor.model
    replies, wins, maps, streams = naive(model, surveyor.source.tokenizer)
    assert list(plain_survey.answers.replies) == replies
    assert torch.equal(plain_survey.wins, wins)
    assert plain_survey.n_staircase == int((wins.sum(0) > 0).sum())
    assert plain_survey.frequent_heads == most_frequent(wins.sum(0))
    for i, (layer, head) in enumerate(plain_survey.frequent_heads):
        square = pd.DataFrame(maps[:, layer, head].flatten(1).double().numpy())  # NaN is left out
        for statistic, expected in (
            (plain_survey.mean, square.mean()),
            (plain_survey.std, square.std()),
        ):
            np.testing.assert_allclose(
                statistic[i].flatten(), expected.fillna(0), atol=1e-4, rtol=1e-3
            )
    for output, layer in product(range(5), range(3)):
        middle, end = (surveyor._stored("stream", output, layer, after) for after in (0, 1))
        block = blocks(model)[layer]
        with torch.inference_mode():
            added = block.layer.mlp(block.norm(middle))
        assert_close(middle + added, end)
        # the last entry of hidden_states is after the final norm
        for prompt, expected in enumerate(streams):
            if layer < 2 and output < expected.shape[1]:
                assert_close(end[prompt], expected[layer, output])
    kinds = [a.kind for a in plain_survey.ablated]
    assert kinds[:3] == ["asked", "frequent", "frequent"]
    assert {*kinds[3:]} <= {"random"}
    # what is asked for may be a frequent pair
    assert len({a.heads for a in plain_survey.ablated[1:]}) == len(kinds) - 1


@pytest.mark.needs("a CUDA device")
def test_a_gpu_gives_the_same_survey(model_folder, plain_survey, tmp_path):
    on_gpu = head_survey.Surveyor(
        inspect_model(str(model_folder), BARE, device="cuda"), tmp_path / "gpu", **PLAN
    ).run()
    assert on_gpu.record["device"] == "cuda"
    assert torch.equal(on_gpu.wins[:4], plain_survey.wins[:4])
    torch.testing.assert_close(on_gpu.mean, plain_survey.mean, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("model_folder", [("mistral", "grouped_digits")], indirect=True)
def test_what_was_stopped_goes_on_where_it_was(model_folder, plain_survey, tmp_path, monkeypatch):
    def stop(step, share):
        if step == "intact-0002":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(model_folder, tmp_path / "parts", report=stop)
    (parts,) = (tmp_path / "parts").iterdir()
    assert sorted(path.name for path in parts.iterdir()) == [
        f"intact-000{i}.safetensors" for i in range(3)
    ]
    (parts / "intact-0001.safetensors").unlink()
    batches = []
    inputs = head_survey.Surveyor._inputs
    monkeypatch.setattr(
        head_survey.Surveyor, "_inputs", lambda self, x: batches.append(len(x)) or inputs(self, x)
    )
    again = run(model_folder, tmp_path / "parts")
    # the lost batch, the last one, and the ablations
    assert batches == [6, 2, *[6, 6, 6, 2] * len(plain_survey.ablated)]
    assert again.lines() == plain_survey.lines()
    assert torch.equal(again.wins, plain_survey.wins)
    assert_close(again.points, plain_survey.points)
    batches.clear()
    run(model_folder, tmp_path / "parts")
    assert batches == []
    other_survey = run(model_folder, tmp_path / "parts", seed=1)  # other prompts are another survey
    assert len(batches) == 4 * (1 + len(other_survey.ablated))


@pytest.fixture
def never_loaded(monkeypatch):
    def load(*args, **kwargs):
        raise AssertionError("weights were read before everything was checked")

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", load)


def test_the_command_writes_one_small_file(carry, data, tmp_path):
    model_folder = str(folder(tmp_path / "tiny"))
    code, out, err = carry("llm", model_folder, "--prompts", "12", "--ablate", "0:1,2:3")
    assert code == 0, err
    written = head_survey.read(data / "llm" / "tiny" / head_survey.FILE)
    assert format_heads(written.ablated[0].heads) == "0:1,2:3"
    assert [a.kind for a in written.ablated] == ["asked"]  # its layers have no two other heads
    too_few = head_survey.too_few_right(written.answers)
    assert out.splitlines()[:-1] == [*written.lines(), too_few]
    assert [path.name for path in (data / "llm" / "tiny").iterdir()] == [head_survey.FILE]
    code, out, err = carry(
        "llm", model_folder, "--prompts", "12", "--out", str(tmp_path / "elsewhere")
    )
    assert code == 0, err
    kinds = [a.kind for a in head_survey.read(tmp_path / "elsewhere" / head_survey.FILE).ablated]
    assert kinds == ["frequent"] * 3 + ["random"] * 3


@pytest.mark.usefixtures("never_loaded")
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ("--ablate", "40:2"),
            "No head 40:2: expected a layer from 0 to 2 and a head from 0 to 3.",
        ),
        (("--ablate", "0:0,0:0"), "--ablate 0:0,0:0: expected heads as layer:head, each once"),
    ],
)
def test_bad_options(refused, data, tmp_path, arguments, complaint):
    assert complaint in refused("llm", str(folder(tmp_path / "tiny")), *arguments)
    assert list(data.iterdir()) == []


def test_damaged_weights_and_a_survey_that_is_missing_or_damaged(refused, tmp_path):
    model_folder, path = folder(tmp_path / "tiny"), tmp_path / head_survey.FILE
    (model_folder / "model.safetensors").write_bytes(b"0" * 100)
    assert f"{model_folder} holds no language model that can be read" in refused(
        "llm", str(model_folder)
    )
    with pytest.raises(BadInput, match="does not exist: run `carry llm` again"):
        head_survey.read(path)
    path.write_bytes(b"0" * 50)
    with pytest.raises(BadInput, match="is damaged"):
        head_survey.read(path)
