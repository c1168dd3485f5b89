"""Import all of `carry_core` and `carry_fast` where only its own requirements are installed.

`make bare` runs it in an environment of its own; pytest does not collect it.
"""

import importlib.util
import pkgutil
import subprocess
import sys
from pathlib import Path

import torch

import carry_core
import carry_fast


def main() -> None:
    assert Path(carry_core.__file__).is_relative_to(sys.prefix), (
        "the installed package, not the checkout"
    )
    assert Path(carry_core.__file__).with_name("py.typed").is_file()
    assert importlib.util.find_spec("click") is None, (
        "expected an environment with the core's packages alone"
    )
    modules = []
    for package in (carry_core, carry_fast):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            modules.append(module.name)
    for name in modules:
        importlib.import_module(name)
    assert carry_core.engine.engine() is carry_fast.engine, "found by its entry point"
    model = carry_core.Transformer(carry_core.ModelConfig(width=2)).requires_grad_(
        requires_grad=False
    )
    hook = carry_core.Ablation(heads={(1, 0)}).hook(model)
    logits = model(
        carry_core.encode(torch.tensor([15]), torch.tensor([26]), model.config.layout), hook
    )
    assert logits.isfinite().all()
    carry = subprocess.run(
        [Path(sys.prefix) / "bin" / "carry"], capture_output=True, text=True, check=False
    )
    assert (carry.returncode, carry.stdout, carry.stderr.count("\n")) == (2, "", 1), carry
    assert "pip install 'carry-core[paper]'" in carry.stderr
    print(f"{len(modules)} modules of core and fast work with their own requirements alone.")


if __name__ == "__main__":
    main()
