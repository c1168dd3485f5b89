"""The front door is typed: a type checker sees through it."""

import os
import re
import subprocess
import sys

import pytest

import carry_core
from carry_core.files import ROOT

CORRECT = 'load("n2_s0.3_w0.2", recipe="quick").model(0)'
WRONG = {
    'load("x", nonsense=3)': 'Unexpected keyword argument "nonsense" for "load"',
    "sample(1000, 3)": 'Missing positional argument "seed"',
    "Ablation(head={(1, 0)})": 'Unexpected keyword argument "head" for "Ablation"',
}


@pytest.mark.slow
@pytest.mark.types
def test_a_type_checker_sees_wrong_calls_and_no_others(tmp_path):
    """It shares the cache of `make types`, and takes as long as this where there is none yet.

    So its options are those of `make types`: with others, each would drop the other's cache.
    """
    example = tmp_path / "example.py"
    calls = [CORRECT, *WRONG]
    example.write_text("\n".join(["from carry_core import Ablation, load, sample", *calls, ""]))
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", str(example)],
        env=os.environ | {"MYPYPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    errors = [line for line in checked.stdout.splitlines() if " error: " in line]
    assert len(errors) == len(WRONG), checked.stdout + checked.stderr
    for number, (call, complaint) in enumerate(WRONG.items(), start=3):
        (error,) = [line for line in errors if f"example.py:{number}: " in line]
        assert complaint in error, call


def test_the_front_door_says_what_each_file_is_for():
    listed = re.findall(r"^    (\w+(?:, \w+)*)  ", carry_core.__doc__, re.MULTILINE)
    names = {name for line in listed for name in line.split(", ")}
    assert names == {path.stem for path in (ROOT / "carry_core").glob("*.py")} - {"__init__"}
