"""What a stranger's model folder may do, which is nothing, and what works where `transformers` is not installed."""

import json
import os
import subprocess
import sys

import pytest

from carry_core.errors import BadInput
from carry_core.files import ROOT
from carry_paper.llm import prompts
from carry_paper.llm.model import inspect_model
from tests.helpers.llm_models import folder

pytestmark = pytest.mark.slow

EVIL = """
from pathlib import Path
Path({mark!r}).touch()
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
class Config(LlamaConfig): model_type = "evil"
class Model(LlamaForCausalLM): config_class = Config
class Tokenizer(PreTrainedTokenizerFast): pass
def generate(*args, **kwargs): return None
"""


def change(path, **entries):
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


def plant_config(path):
    classes = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    change(path / "config.json", model_type="evil", architectures=["Model"], auto_map=classes)


def plant_tokenizer(path):
    names = {"AutoTokenizer": [None, "evil.Tokenizer"]}
    change(path / "tokenizer_config.json", tokenizer_class="Tokenizer", auto_map=names)
    change(path / "config.json", auto_map={"AutoTokenizer": [None, "evil.Tokenizer"]})


def plant_generate(path):
    (path / "custom_generate").mkdir()
    (path / "evil.py").rename(path / "custom_generate" / "generate.py")


RUN = """
import sys
from carry_paper.cli import main
out, *folders = sys.argv[1:]
for where in folders:
    sys.argv = ["carry", "llm", where, "--prompts", "10", "--out", out]
    try:
        main()
    except SystemExit as end:
        print(end.code)
"""


def test_a_folders_own_code_is_never_run(tmp_path):
    """Nor with `y` on standard input, by which `transformers` lets itself be told to run it."""
    mark, plants = tmp_path / "pwned", (plant_config, plant_tokenizer, plant_generate)
    for plant in plants:
        model_folder = folder(tmp_path / plant.__name__)
        (model_folder / "evil.py").write_text(EVIL.format(mark=str(mark)))
        plant(model_folder)
    command = [
        sys.executable,
        "-c",
        RUN,
        tmp_path / "out",
        *(tmp_path / plant.__name__ for plant in plants),
    ]
    environment = {
        "CARRY_DATA": str(tmp_path / "data"),
        "PATH": "",
        "HF_HOME": str(tmp_path / "hf"),
    }
    result = subprocess.run(
        command, input="y\n" * 9, capture_output=True, text=True, cwd=ROOT, env=environment
    )
    assert not mark.exists()
    assert "Traceback" not in result.stderr
    refused = f"{tmp_path / 'plant_config'} holds no language model that can be read (ValueError: "
    # beside a known architecture it is left alone, and the model is read
    assert result.stderr.startswith(refused)
    assert result.stdout.startswith("2\n")


BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("transformers", "tokenizers", "huggingface_hub"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
"""


WITHOUT = """
import importlib, pkgutil, carry_core, carry_paper
from click.testing import CliRunner
for package in (carry_core, carry_paper):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if module.name.startswith("carry_paper.training.gpu"):
            continue  # these need Triton, which another test is about
        if module.name not in ("carry_paper.llm.small", "carry_paper.__main__"):
            importlib.import_module(module.name)
from carry_paper.cli import carry, main
for arguments in (["--help"], ["claims", "--help"], ["llm", "--help"]):
    assert CliRunner().invoke(carry, arguments).exit_code == 0
for arguments in (["llm", "data/llm/small", "--out", "_build/nowhere"], ["train-llm"]):
    sys.argv = ["carry", *arguments]
    try:
        main()
    except SystemExit as end:
        assert end.code == 2
"""


def test_everything_else_works_without_transformers_and_the_missing_extra_is_one_line(tmp_path):
    command, environment = (
        [sys.executable, "-c", BLOCKED + WITHOUT],
        os.environ | {"CARRY_DATA": str(tmp_path)},
    )
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert (result.returncode, result.stdout) == (0, ""), result.stderr
    assert [line.count("pip install 'carry-core[llm]'") for line in result.stderr.splitlines()] == [
        1,
        1,
    ]
    assert list(tmp_path.iterdir()) == []


def test_a_pickle_among_the_weights_is_not_run(tmp_path):
    model_folder, mark = folder(tmp_path / "model"), tmp_path / "pwned"
    (model_folder / "model.safetensors").unlink()
    (model_folder / "pytorch_model.bin").write_bytes(
        b"cpathlib\nPath.touch\n(cpathlib\nPath\n(V" + str(mark).encode() + b"\ntRtR."
    )
    with pytest.raises(BadInput, match="can be read"):
        inspect_model(str(model_folder), prompts.TEMPLATES["bare"]).load()
    assert not mark.exists()
