"""A stranger's model folder may do nothing; and what works without `transformers` and Triton."""

import json
import os
import subprocess
import sys
import tomllib

import pytest
from packaging.requirements import Requirement

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
        "OMP_NUM_THREADS": "1",  # threads that wait for each other take most of the time
    }
    result = subprocess.run(
        command, input="y\n" * 9, capture_output=True, text=True, cwd=ROOT, env=environment
    )
    assert not mark.exists()
    assert "Traceback" not in result.stderr
    refused = f"{tmp_path / 'plant_config'} holds no language model that can be read (ValueError: "
    # Beside a known architecture the code is left alone, and the model is read.
    assert result.stderr.startswith(refused)
    assert result.stdout.startswith("2\n")


# The package that a module needs, where neither the core nor the extra `paper` brings it.
NEEDS_A_PACKAGE = {
    "carry_paper.llm.small": "transformers",
    "carry_train.gpu": "triton",
    "carry_train.gpu_kernels": "triton",
    "carry_train.gpu_trainer": "triton",
}


def optional_packages() -> set[str]:
    """Read from `pyproject.toml` what the other extras bring."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    names = set()
    for extra in ("llm", "lens", "gpu"):
        for line in pyproject["project"]["optional-dependencies"][extra]:
            names.add(Requirement(line).name.replace("-", "_"))
    return names - {"carry_core"}


IMPORT_WITHOUT = """
import importlib, json, pkgutil, sys
blocked, needs = map(json.loads, sys.argv[1:3])

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())

import carry_core, carry_fast, carry_paper, carry_train

for package in (carry_core, carry_fast, carry_train, carry_paper):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        missing = None
        if module.name != "carry_paper.__main__":  # it runs the command
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                missing = error.name
        assert missing == needs.pop(module.name, None), (module.name, missing)
assert not needs, f"there are no {needs}"

from click.testing import CliRunner
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


def test_everything_else_works_without_other_extras_and_a_missing_one_is_one_line(tmp_path):
    packages = sorted(optional_packages())
    assert {"transformers", "tokenizers", "triton"} <= set(packages)
    result = subprocess.run(
        [sys.executable, "-c", IMPORT_WITHOUT, json.dumps(packages), json.dumps(NEEDS_A_PACKAGE)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"CARRY_DATA": str(tmp_path)},
    )
    assert (result.returncode, result.stdout) == (0, ""), result.stderr
    remedies = [line.count("pip install 'carry-core[llm]'") for line in result.stderr.splitlines()]
    assert remedies == [1, 1]
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
