"""What a stranger's model folder may do, which is nothing, and what works where `transformers` is not installed."""

import json
import subprocess
import sys

import pytest

from carry_core.errors import BadInput
from carry_core.files import ROOT
from carry_core.llm import prompts
from carry_core.llm.model import inspect_model
from tests.llm_models import folder

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


def plant_config(where):
    classes = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    change(where / "config.json", model_type="evil", architectures=["Model"], auto_map=classes)


def plant_tokenizer(where):
    names = {"AutoTokenizer": [None, "evil.Tokenizer"]}
    change(where / "tokenizer_config.json", tokenizer_class="Tokenizer", auto_map=names)
    change(where / "config.json", auto_map={"AutoTokenizer": [None, "evil.Tokenizer"]})


def plant_generate(where):
    (where / "custom_generate").mkdir()
    (where / "evil.py").rename(where / "custom_generate" / "generate.py")


@pytest.mark.parametrize("plant", [plant_config, plant_tokenizer, plant_generate])
def test_a_folders_own_code_is_never_run(tmp_path, plant):
    """Nor with `y` on standard input, by which `transformers` lets itself be told to run it."""
    where, mark = folder(tmp_path / "model"), tmp_path / "pwned"
    (where / "evil.py").write_text(EVIL.format(mark=str(mark)))
    plant(where)
    command = [sys.executable, "-m", "carry_core", "llm", str(where), "--prompts", "10", "--out", str(tmp_path / "out")]
    environment = {"CARRY_DATA": str(tmp_path / "data"), "PATH": "", "HF_HOME": str(tmp_path / "hf")}
    result = subprocess.run(command, input="y\n" * 9, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert not mark.exists()
    assert "Traceback" not in result.stderr
    if plant is plant_config:  # beside a known architecture, foreign code is left alone and the model is read
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr.count("\n") == 1
        assert f"{where} brings Python code of its own, which is never run here: expected" in result.stderr


BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("transformers", "tokenizers", "huggingface_hub"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
"""


def without_extra(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", BLOCKED + code], capture_output=True, text=True, cwd=ROOT)


def test_everything_else_works_without_transformers():
    code = """
import pkgutil, importlib, carry_core
for module in pkgutil.walk_packages(carry_core.__path__, "carry_core."):
    if module.name != "carry_core.llm.small":
        importlib.import_module(module.name)
from click.testing import CliRunner
from carry_core.cli import carry
for arguments in (["--help"], ["claims", "--help"], ["llm", "--help"]):
    result = CliRunner().invoke(carry, arguments)
    assert result.exit_code == 0, result.output
"""
    result = without_extra(code)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("arguments", [["llm", "data/llm/small", "--out", "_build/nowhere"], ["train-llm"]])
def test_a_missing_extra_is_one_line(arguments, tmp_path):
    code = f"import os; os.environ['CARRY_DATA'] = {str(tmp_path)!r}; sys.argv = ['carry', *{arguments!r}]\n"
    result = without_extra(code + "from carry_core.cli import main; main()")
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1), result.stderr
    assert "pip install 'carry-core[llm]'" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_needs_no_language_model_does_not_import_one():
    code = "import carry_core.cli, carry_core.plots, sys; print('transformers' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout.strip() == "False"


def test_a_pickle_among_the_weights_is_not_run(tmp_path):
    where, mark = folder(tmp_path / "model"), tmp_path / "pwned"
    (where / "model.safetensors").unlink()
    (where / "pytorch_model.bin").write_bytes(
        b"cpathlib\nPath.touch\n(cpathlib\nPath\n(V" + str(mark).encode() + b"\ntRtR."
    )
    with pytest.raises(BadInput, match="cannot be loaded"):
        inspect_model(str(where), prompts.TEMPLATES["bare"]).load()
    assert not mark.exists()
