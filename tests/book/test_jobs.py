"""`make train` and `make rerun`: what they start, on this machine and through SLURM."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import jobs
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from carry_core.errors import BadInput
from carry_core.files import ROOT
from carry_paper.findings import cells
from carry_train import groups, loop, seeds
from carry_train.checkpoints import Checkpoints

N1, MAIN, FINETUNED = "n1_s0.3_w0.2", "n2_s0.3_w0.2", "pad6_finetuned500_n2_s0.3_w0.2"


def test_what_is_shipped_is_not_trained_again_and_the_stamp_of_a_lost_run_goes(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert jobs.trainings({"groups": MAIN, "recipe": "quick", "runs": "0-5"}) == []
    stamp = Path(f"trained/{MAIN}/quick/run900.all")
    stamp.parent.mkdir(parents=True)
    stamp.touch()
    assert jobs.trainings({"groups": MAIN, "recipe": "quick", "runs": "5,900"}) == [str(stamp)]
    assert not stamp.exists()
    assert jobs.trainings({"groups": MAIN, "recipe": "quick", "runs": "900", "epochs": "2"}) == [
        f"{stamp.parent}/run900.2"
    ]


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (jobs.trainings, {"groups": MAIN, "epochs": "0"}, "EPOCHS=0: expected a whole number"),
        (jobs.trainings, {"groups": MAIN, "recipe": "slow"}, "Unknown recipe 'slow': expected"),
        (
            jobs.trainings,
            {"groups": MAIN, "recipe": "quick", "runs": "5", "order_seed": "0"},
            "Run 5 of n2_s0.3_w0.2 has other seeds .*: pass no seeds",
        ),
        (jobs.runs_of_cell, {"group": FINETUNED}, "a cell starts from initial weights"),
        (jobs.runs_of_cell, {"precision": "auto"}, "PRECISION=auto: expected one of fp32, tf32"),
        (jobs.runs_of_cell, {"order_seed": "3"}, "ORDER_SEED=3: `make cell` takes GROUP, RUNS"),
        (jobs.reruns, {"what": "tab9"}, "WHAT=tab9: no notebook"),
        (jobs.reruns, {"group": MAIN, "runs": ""}, f"GROUP={MAIN}: `make rerun` takes WHAT"),
        (jobs.trainings, {"group": MAIN}, f"GROUP={MAIN}: `make train` takes GROUPS, RUNS"),
    ],
)
def test_what_cannot_be_done_is_said(make, options, message):
    with pytest.raises(BadInput, match=message):
        make(options)


def test_runs_that_a_cell_has_are_not_made_again(tmp_path, data, monkeypatch):
    monkeypatch.chdir(tmp_path)
    request = {"group": N1, "runs": "200,201", "new": "mask", "precision": "torch-fp32"}
    stamps = [f"cells/{N1}/minute/mask.0/all.all/run{run}" for run in (200, 201)]
    assert jobs.runs_of_cell(request) == stamps
    stored = {"precision": "torch-fp32", "processor": cells.this_processor(), "run": 200}
    cell = cells.find_cell(N1, "minute", "mask")
    monkeypatch.setattr(cells, "saved", lambda: pd.DataFrame([{**cell.key, **stored}]))
    assert jobs.runs_of_cell(request) == stamps[1:]
    assert len(jobs.runs_of_cell({**request, "new": ""})) == 2


@pytest.mark.machine
@pytest.mark.slow
def test_a_job_is_given_the_seeds_that_are_asked_for(tmp_path, no_cluster):
    """Also 0, and only those; `make` gives the others as empty words."""
    words = (
        f"-m snakemake --snakefile {ROOT}/workflow/Snakefile --directory {tmp_path} "
        f"--workflow-profile {ROOT}/workflow/profiles/local "
        "train --dry-run --printshellcmds --quiet host --config task=train "
        f"groups={MAIN} runs=900 recipe=quick init_seed=0 order_seed= mask_seed=12 rounding_seed=3"
    )
    command = [sys.executable, *words.split()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    printed = " ".join((done.stdout + done.stderr).split())
    assert "--precision auto --init-seed 0 --mask-seed 12 --rounding-seed 3 >" in printed
    make = (ROOT / "Makefile").read_text()
    assert all(f"{name}_seed={name.upper()}_SEED" in make for name in seeds.NAMES)


def test_notebooks_are_named_by_their_beginnings():
    reruns = jobs.reruns({"what": "tab01 fig04", "groups": f"{MAIN} {N1}", "source": "author"})
    assert len(reruns) == 4
    assert reruns[0] == f"rerun/author/{MAIN}/tab01_decision_head_and_final_mlp.json"


def make(target: str, data: Path, *settings: str) -> "subprocess.Popen[str]":
    """`make` with a job for each run or notebook, which Snakemake asks after every second."""
    environment = os.environ | {"CARRY_DATA": str(data)}
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_CURRENT_TEST", "MAKEFLAGS"):
        environment.pop(name, None)
    profile = "PROFILE=slurm --slurm-init-seconds-before-status-checks 1"
    command = ["make", target, *settings, profile]
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=ROOT, env=environment, **piped)


def finished(process: "subprocess.Popen[str]") -> str:
    output, _ = process.communicate(timeout=900)
    assert process.returncode == 0, output
    return output


def running() -> list[str]:
    return subprocess.check_output(
        ["squeue", "--noheader", "--states=R", "--format=%i"], text=True
    ).split()


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.needs("SLURM")
def test_slurm_trains_to_the_same_weights_though_a_job_is_killed_and_runs_notebooks(tmp_path):
    """Two runs, one of them killed, beside the same runs of one process; then a page of two groups.

    Most of the time goes by between Snakemake's questions to SLURM: each time that no job has
    ended, it waits ten seconds longer.
    """
    (tmp_path / "slurm").mkdir()
    wanted = (f"GROUPS={N1}", "RUNS=900-901", "RECIPE=quick", "EPOCHS=1", "PRECISION=torch-fp32")
    training = make("train", tmp_path / "slurm", *wanted)
    end = time.monotonic() + 300
    while not running():
        assert training.poll() is None
        assert time.monotonic() < end
        time.sleep(0.2)
    subprocess.run(["scancel", running()[0]], check=True)
    checkpoints = Checkpoints(
        tmp_path / "checkpoints", groups.find(N1), replace(groups.RECIPES["quick"], limit=1)
    )
    loop.train_group(checkpoints, range(900, 902), tmp_path / "here")
    finished(training)
    for run in range(900, 902):
        path = f"{N1}/quick/run{run}.safetensors"
        local, on_slurm = (
            load_file(folder / path) for folder in (tmp_path / "here", tmp_path / "slurm" / "runs")
        )
        assert local.keys() == on_slurm.keys()
        assert all(torch.equal(local[name], on_slurm[name]) for name in local)
    output = finished(make("rerun", ROOT / "data", "WHAT=tab03", f"GROUPS={N1} n3_s0.3_w0.2"))
    assert output.count("_build/rerun/ours/") == 1
    assert "expected three layers" in output
