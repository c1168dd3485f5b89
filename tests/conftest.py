import os
import pickle
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import combinations
from pathlib import Path
from typing import Any

import jaxtyping
import pytest
import torch
from filelock import FileLock

from carry_core import measure, sums
from carry_core.interventions import INTACT, Ablation, Sums
from carry_core.model import ModelConfig, Transformer
from carry_fast import processor
from carry_paper import author, cli
from carry_paper.findings import survey
from carry_train.groups import Group
from tests.helpers import chromium, needs

# PyTorch itself obeys the number in the environment, if there is one.
if "OMP_NUM_THREADS" not in os.environ:
    torch.set_num_threads(1)

# Set by a machine of `make machines` that has another processor.
if "CARRY_TEST_PROCESSOR" in os.environ:
    pretended = processor.Processor(
        instructions=frozenset(os.environ["CARRY_TEST_PROCESSOR"].split())
    )
    processor.this = lambda: pretended

USER_DATA = ("CARRY_DATA", "CARRY_AUTHOR", "CARRY_AUTHOR_FIGURES")
# Git sets these for its hooks. In tests that a hook runs, git would write to this repository.
SET_BY_GIT = ("GIT_DIR", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_WORK_TREE")
for name in (*USER_DATA, *SET_BY_GIT):
    os.environ.pop(name, None)

SHAPES = {
    "encoder": ModelConfig(width=2, d_model=16, d_ff=24),
    "one layer": ModelConfig(layers=1, width=3, d_model=16, d_ff=8),
    "three layers": ModelConfig(layers=3, width=2, d_model=24, heads=3, d_ff=16),
    "decoder": ModelConfig(width=2, causal=True, d_model=16, d_ff=16),
    "one-layer decoder": ModelConfig(layers=1, width=3, causal=True, d_model=16, d_ff=16),
    "padded": ModelConfig(width=4, d_model=16, d_ff=16),
}
QUICK_SHAPES = ("encoder", "decoder")
# One, two and three layers, of which two are causal; each is the shape of the fixture `config`.
TRIED = ("one layer", "decoder", "three layers")


# To import the author's release, or to start a browser, takes longer than most tests.
SLOW_FIXTURES = {"released", "browser"}
# A test that needs one of these gets the marker `machine` only if it has it in its own file: there
# are many such tests, or other targets of make run them.
NOT_SIMULATED = {
    "the built site",
    "the author's release",
    "the wheel, installed",
    "TransformerLens",
    "nnsight",
    "pyvene",
    "a CUDA device",
    "Triton",
    "SLURM",
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests with slow fixtures as slow, and give tests what their fixtures need.

    The outcome of a test that needs something depends on the machine: it may be skipped.
    """
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if not SLOW_FIXTURES.isdisjoint(fixtures):
            item.add_marker(pytest.mark.slow)
        for name in needs.FIXTURES.keys() & fixtures:
            item.add_marker(pytest.mark.needs(needs.FIXTURES[name]))
        needed = {name for mark in item.iter_markers("needs") for name in mark.args}
        if needed and needed.isdisjoint(NOT_SIMULATED):
            item.add_marker(pytest.mark.machine)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test before its fixtures if the machine lacks what it needs."""
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            needs.require(name)


@pytest.fixture(scope="session")
def lens() -> Any:
    """TransformerLens."""
    return import_module("transformer_lens")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder beside the repository: the paper, parts of the author's release, golden values."""
    return needs.SHARED


def quick_first(names: Iterable[str]) -> list[Any]:
    """Parameters for these shapes of `SHAPES`; `make quick` tries two of them."""
    return [
        pytest.param(name, marks=[] if name in QUICK_SHAPES else [pytest.mark.slow])
        for name in names
    ]


@contextmanager
def dissecting_few() -> Iterator[None]:
    """Dissections take few samples, of few sums."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(survey, "DRAWN", 40)
        patch.setattr(survey, "DRAWS", 2)  # their variance needs two
        yield


@contextmanager
def drawing_few() -> Iterator[None]:
    """Dissections, attention and the choice of the decision head take few sums."""
    with dissecting_few(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(survey, "SAMPLE", 500)
        patch.setattr(measure, "DECISION_SUMS", 500)
        patch.setattr(measure, "DECISION_PAIRS", 25)
        yield


@pytest.fixture
def few_draws() -> Iterator[None]:
    with dissecting_few():
        yield


@pytest.fixture
def few_random_sums() -> Iterator[None]:
    with drawing_few():
        yield


@pytest.fixture(params=quick_first(TRIED))
def config(request: pytest.FixtureRequest) -> ModelConfig:
    return SHAPES[request.param]


def random_model(config: ModelConfig, seed: int = 0, noise: float = 0.0) -> Transformer:
    """A model with random weights; without noise it gives most sums the same answer."""
    torch.manual_seed(seed)
    model = Transformer(config).requires_grad_(requires_grad=False).eval()
    for parameter in model.parameters() if noise else ():
        parameter.add_(noise * torch.randn_like(parameter))
    return model


def drawn(config: ModelConfig, seed: int = 4, count: int = 9) -> Sums:
    """Random sums that a model of this shape can add."""
    return sums.long_sums(count, config.width, torch.Generator().manual_seed(seed))


def tokens_of(config: ModelConfig, seed: int = 4, count: int = 9) -> torch.Tensor:
    return sums.encode(*drawn(config, seed, count), config.layout)


def zero_ablations(config: ModelConfig) -> list[Ablation]:
    """Each head, MLP and skip of all layers ablated, and a third of each layer's neurons.

    Each pair of these follows, and the intact model comes first.
    """
    parts = []
    for layer in range(config.layers):
        parts += [Ablation(heads={(layer, head)}) for head in range(config.heads)]
        parts += [Ablation(mlps={layer}), Ablation(skips={layer})]
        parts.append(Ablation(neurons={(layer, neuron) for neuron in range(0, config.d_ff, 3)}))
    pairs = [first | second for first, second in combinations(parts, 2)]
    return [INTACT, *parts, *pairs]


@pytest.fixture
def model(config: ModelConfig) -> Transformer:
    """A random model in float64, its norms and biases away from their simple starting values."""
    return random_model(config, noise=0.2).double().requires_grad_()


@pytest.fixture
def as_a_user_has_it() -> Iterator[None]:
    """Types in signatures are not checked, as in ordinary use."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def noisy(monkeypatch: pytest.MonkeyPatch) -> Transformer:
    """A random float64 model of two digits, run in several batches, the last one short."""
    monkeypatch.setattr(measure, "BATCH", 1000)
    return random_model(ModelConfig(width=2, d_model=16, d_ff=12), 1, noise=0.5).double()


@pytest.fixture
def small_group() -> Group:
    """All two-digit sums, seconds to train."""
    return Group(
        "small",
        ModelConfig(width=2, d_model=16, d_ff=16),
        n_digits=2,
        batch=256,
        epochs=4,
        n_runs=3,
    )


@pytest.fixture(scope="session")
def released(
    shared: Path, tmp_path_factory: pytest.TempPathFactory, worker_id: str
) -> tuple[Path, author.Report]:
    """The author's release, imported once for all workers, and the importer's report."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "release" / "author"
    with FileLock(f"{folder.parent}.lock"):
        if not folder.exists():
            # To read a history takes a second or two, and no test looks at the others.
            history = re.compile("(Encoder-only|unprimed)/.*DATA_")
            read = re.compile(r"DATA_(n1_s0.3_w0.2_0|n2_s0.3_w0.2_2)\.data")
            files = {
                path: digest
                for path, digest in author.checksums().items()
                if read.search(path) or not history.search(path)
            }
            report = author.import_release(shared / "CarryingTransformers", folder, files)
            (folder.parent / "report").write_bytes(pickle.dumps(report))
    return folder, pickle.loads((folder.parent / "report").read_bytes())


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder in place of the repository's."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("CARRY_DATA", str(folder))
    monkeypatch.delenv("CARRY_AUTHOR", raising=False)
    return folder


@pytest.fixture
def processor_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[Iterable[str]], None]:
    """Replace this machine's processor by one that has these instructions and no others."""

    def replace(instructions: Iterable[str]) -> None:
        pretended = processor.Processor(instructions=frozenset(instructions))
        monkeypatch.setattr(processor, "this", lambda: pretended)

    return replace


@pytest.fixture
def no_cluster(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """SLURM's commands fail at once; where they are installed but no cluster answers, each waits.

    Snakemake asks `scontrol` whenever it starts.
    """
    folder = tmp_path_factory.mktemp("no_cluster")
    for name in filter(needs.in_path, ("sinfo", "scontrol")):
        (folder / name).write_text("#!/bin/sh\nexit 1\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


@pytest.fixture(scope="session")
def opened(tmp_path_factory):
    browser = chromium.Chromium(tmp_path_factory.mktemp("profile"), chromium.find())
    yield browser
    browser.close()


@pytest.fixture
def browser(opened):
    """A browser in which no script may throw."""
    opened.errors.clear()
    yield opened
    assert opened.errors == []


@pytest.fixture
def carry(data, monkeypatch, capsys):
    """Run `carry` in this process: a new one for each call would spend its time on imports."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["carry", *arguments])
        try:
            cli.main()
            code = 0
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def refused(carry):
    """The one line of `carry` about arguments that it has to refuse."""

    def run(*arguments: str) -> str:
        code, out, err = carry(*arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)
        return err

    return run
