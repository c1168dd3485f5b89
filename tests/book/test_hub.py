"""Folders for a model hub: the loader in them needs no package of ours and answers as ours do."""

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import hub
import pytest
import torch

from carry_core import runs, sums
from carry_core.errors import BadInput
from carry_core.interventions import Sums
from carry_core.sums import Layout
from carry_paper import catalogue
from carry_train import groups
from tests.helpers.tolerances import assert_close

pytestmark = [pytest.mark.slow, pytest.mark.machine]
# An encoder, a decoder, and numbers with leading zeros.
GROUPS = (groups.MAIN, "decoder_n2_s0.3_w0.2", "pad6_primed100_n2_s0.3_w0.2")
N_SUMS = 50
# Run where `carry_core` cannot be imported, for folders of groups one after the other.
ASK = """
import json, os, sys, torch
torch.set_num_threads(1)
sys.modules["carry_core"] = sys.modules["carry_paper"] = None
answers = []
for folder, questions in json.load(sys.stdin):
    os.chdir(folder)
    sys.modules.pop("modeling_carry", None)
    from modeling_carry import answer, load, logits
    weights, config = load("run0")
    computed = logits(weights, config, torch.tensor(questions["tokens"]))
    texts = [answer(weights, config, text) for text in questions["texts"]]
    answers.append((texts, computed.tolist(), load.__code__.co_filename))
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> dict[str, Path]:
    out = tmp_path_factory.mktemp("hub")
    return {name: hub.write(name, out) for name in GROUPS}


def drawn_tokens(layout: Layout) -> tuple[Sums, torch.Tensor]:
    """Return the same random sums for each group of a width, and their tokens."""
    a, b = sums.long_sums(N_SUMS, layout.width, torch.Generator().manual_seed(5))
    return (a, b), sums.encode(a, b, layout)


@pytest.fixture(scope="module")
def answered(written) -> dict[str, tuple[list[str], torch.Tensor]]:
    """The loader's answers and logits in each folder: one process imports PyTorch for all."""
    questions = []
    for name, folder in written.items():
        layout = groups.find(name).config.layout
        pairs, tokens = drawn_tokens(layout)
        width = layout.width
        texts = [f"{int(x):0{width}}+{int(y):0{width}}" for x, y in zip(*pairs, strict=True)]
        questions.append((str(folder), {"texts": texts, "tokens": tokens.tolist()}))
    command = [sys.executable, "-B", "-W", "error", "-c", ASK]
    asked = subprocess.run(
        command, input=json.dumps(questions), capture_output=True, text=True, check=False
    )
    assert asked.returncode == 0, asked.stderr
    answers = {}
    for (name, folder), (texts, logits, file) in zip(
        written.items(), json.loads(asked.stdout), strict=True
    ):
        assert Path(file) == folder / hub.LOADER, "each folder is asked with its own loader"
        answers[name] = (texts, torch.tensor(logits))
    return answers


@pytest.mark.parametrize("name", GROUPS)
def test_the_loader_in_it_answers_as_our_model(answered, name):
    answers, computed = answered[name]
    model = catalogue.load(name).model(0)
    layout = model.config.layout
    _, tokens = drawn_tokens(layout)
    expected = model(tokens)
    assert_close(computed, expected)
    if layout.causal:  # digit by digit; ours is given its own answers
        for position in layout.answer:
            tokens[:, position + 1] = model(tokens)[:, position].argmax(-1)
        predicted = tokens[:, -layout.width :]
    else:
        predicted = expected[:, list(layout.answer)].argmax(-1)
    assert answers == ["".join(map(str, row)) for row in predicted.tolist()]


@pytest.mark.parametrize("name", GROUPS)
def test_a_folder_is_loaded_as_the_group_is_and_has_its_records(written, name):
    ours, theirs = catalogue.load(name), catalogue.load(written[name])
    assert (theirs.group, theirs.source, theirs.numbers) == (name, "ours", ours.numbers)
    assert theirs.training == ours.training
    assert theirs.snapshots == ()
    for number, record in zip(ours.numbers, ours.record["runs"], strict=True):
        assert runs.digest(theirs.weights[number]) == runs.digest(ours.weights[number])
        config = json.loads((written[name] / f"run{number}" / "config.json").read_bytes())
        expected = {key: value for key, value in record.items() if key != "snapshots"}
        assert config["training"] == expected
    assert catalogue.load(written[name] / "run0").numbers == (0,)
    with pytest.raises(BadInput, match=r"No learning curves in .*, as `carry train` writes them"):
        catalogue.load_curves(written[name])


@pytest.mark.needs("sha256sum")
def test_the_checksums_are_those_of_all_files(written):
    for folder in written.values():
        subprocess.run(["sha256sum", "--check", "--quiet", hub.SUMS], cwd=folder, check=True)
        listed = re.findall(r"  (.+)", (folder / hub.SUMS).read_text())
        files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        assert files - {hub.SUMS} == {*listed}


@pytest.mark.parametrize("damage", ["no config", "half the weights"])
def test_a_half_downloaded_folder_is_one_line(written, tmp_path, damage):
    whole = written[groups.MAIN]
    run = tmp_path / "run0"
    run.mkdir()
    if damage != "no config":
        (run / "config.json").write_bytes((whole / "run0" / "config.json").read_bytes())
    content = (whole / "run0" / "model.safetensors").read_bytes()
    if damage == "half the weights":
        (run / "model.safetensors").write_bytes(content[: len(content) // 2])
    else:
        (run / "model.safetensors").write_bytes(content)
    loader = runpy.run_path(str(whole / hub.LOADER))
    with pytest.raises(ValueError, match=r"incomplete \(.+\): get it again; `sha256sum -c` checks"):
        loader["load"](run)
    if damage == "no config":  # which only the loader reads
        assert catalogue.load(tmp_path).numbers == (0,)
    else:
        with pytest.raises(BadInput, match="is damaged.*get it again"):
            catalogue.load(tmp_path)
