"""Libraries that are built, kept, damaged and built again (`carry_fast.native`)."""

import os
import subprocess
import sys

import pytest
import torch

from carry_core import measure
from carry_core.model import ModelConfig
from carry_fast import compiled, native
from tests.conftest import drawn, random_model

SOURCE = 'extern "C" int three() { return 3; }\n'

pytestmark = pytest.mark.needs("the forward pass in C++")


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A source of its own, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "three.cpp"
    path.write_text(SOURCE)
    return path


def number_of(source):
    """The number of a source's library, as a new process would get it."""
    native._built.cache_clear()
    return native.library(source, [], set()).three()


def kept(tmp_path):
    (path,) = (tmp_path / "cache").rglob("*.so")
    return path


@pytest.mark.parametrize("kind", ["one bit", "a pipe"])
def test_a_damaged_library_is_built_again(source, tmp_path, kind):
    assert number_of(source) == 3
    path = kept(tmp_path)
    content = path.read_bytes()
    path.unlink()  # another file, since the old one is in use
    if kind == "a pipe":
        os.mkfifo(path)
    else:
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    assert number_of(source) == 3
    assert path.read_bytes() == content


def test_without_a_compiler_there_is_no_library(source, monkeypatch):
    monkeypatch.setenv("CXX", "none-here")
    with pytest.raises(native.Lacking, match="no compiler .none-here."):
        number_of(source)


@pytest.mark.slow
def test_processes_that_build_at_once_all_get_a_whole_library(source):
    code = "import sys; from pathlib import Path; from carry_fast import native\n"
    code += "print(native.library(Path(sys.argv[1]), [], set()).three())"
    command = [sys.executable, "-c", code, source]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate()[0].strip() for process in started] == ["3"] * 3


def test_a_library_that_gives_other_numbers_is_not_used(tmp_path, monkeypatch):
    """One constant of the softmax is changed: digits would be wrong, and nothing would say so."""
    folder = tmp_path / "native"
    folder.mkdir()
    for path in native.FOLDER.iterdir():
        text = path.read_text()
        (folder / path.name).write_text(text.replace("x * 1.44269504f", "x * 0.6f"))
    assert (folder / "vectors.h").read_text() != (native.FOLDER / "vectors.h").read_text()
    monkeypatch.setattr(native, "FOLDER", folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(native, "FLAGS", [*native.FLAGS, "-O1"])  # it is built sooner
    config = ModelConfig(width=2, d_ff=16)
    model, (a, b) = random_model(config, 1, noise=0.2), drawn(config, count=300)
    with pytest.warns(RuntimeWarning, match="had here .it gives wrong numbers.: PyTorch computes"):
        (predicted,) = measure.predict(model, a, b)
    monkeypatch.setenv("CARRY_ENGINE", "plain")
    (expected,) = measure.predict(model, a, b)
    assert torch.equal(predicted, expected)
    assert not compiled._is_right(compiled._built())
