"""The front door is typed: a type checker sees through it."""

import os
import subprocess
import sys

import pytest

from carry_core.files import ROOT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ('load("n2_s0.3_w0.2", recipe="quick").model(0)', ""),
        ('load("x", nonsense=3)', 'Unexpected keyword argument "nonsense" for "load"'),
        ("sample(1000, 3)", 'Missing positional argument "seed"'),
        ("Ablation(head={(1, 0)})", 'Unexpected keyword argument "head" for "Ablation"'),
    ],
)
def test_a_type_checker_sees_a_wrong_call(tmp_path, call, expected):
    """It shares the cache of `make types`, and takes as long as this where there is none yet.

    So its options are those of `make types`: with others, each would drop the other's cache.
    """
    example = tmp_path / "example.py"
    example.write_text(f"from carry_core import Ablation, load, sample\n\n{call}\n")
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", str(example)],
        env=os.environ | {"MYPYPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert expected in checked.stdout
    assert (checked.returncode == 0) == (expected == ""), checked.stdout + checked.stderr
