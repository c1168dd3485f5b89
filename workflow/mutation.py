"""Check that the comparison of outputs notices broken weights.

The final MLP of each group's run 0 is broken, and pages are run with these weights. Every page that
looks at a final MLP has to differ from what is committed. `make test` tries a few pages, `--all`
tries every one; names on the command line, such as tab04_dissection, choose others.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
from executed import ROOT, differences
from safetensors import safe_open
from safetensors.torch import save_file

from carry_paper.pages.page import FALSE_FACT

QUICKEST = ("start_here", "fig07_one_layer_journey")
# These pages do not look at a final MLP.
LANGUAGE_MODELS = {"fig06_llemma", "tab02_language_models"}
COMMITTED_LEDGER = {"claims", "figure_by_figure"}
LEARNING_CURVES = {"fig02_one_layer_transition", "fig11_learning_dynamics"}
BEFORE_FINAL_MLP = {"fig05_mlp_evolution", "fig17_pentagon", "fig22_unprimed_journey"}
BLIND = LANGUAGE_MODELS | COMMITTED_LEDGER | LEARNING_CURVES | BEFORE_FINAL_MLP

NOT_NEEDED = ("author", "checkpoints")  # folders of data/ that no page needs
AT_ONCE = 3  # on two cores: a kernel that starts waits for files, too
ATTEMPTS = 2  # two kernels that start at once may want the same port


def write_broken_data(folder: Path) -> None:
    """Make `folder` a copy of data/ in which the final MLP of each group's run 0 is broken."""
    data = ROOT / "data"
    for source in data.rglob("*"):
        name = source.relative_to(data)
        if not source.is_file() or name.parts[0] in NOT_NEEDED:
            continue
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if name.parts[0] == "runs" and name.name == "run0.safetensors":
            break_mlp(source, target)
        else:
            target.symlink_to(source)


def break_mlp(source: Path, target: Path) -> None:
    """Copy a file of weights; the last MLP's input is negated, and its output is zero.

    The input is not zeroed: the neurons' activations have to change, and pages that divide by their
    spread have to run.
    """
    with safe_open(source, "pt") as file:
        metadata = file.metadata()
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    layers = [int(key.split("blocks.")[1].split(".")[0]) for key in tensors if "blocks." in key]
    last = max(layers)
    for key, tensor in tensors.items():
        if f"blocks.{last}.up." in key:
            tensor.neg_()
        if f"blocks.{last}.down." in key:
            tensor.zero_()
    save_file(tensors, target, metadata)


def notices(name: str, data: Path, out: Path) -> bool:
    """Return True if a page made from `data` differs from what is committed, or from its text.

    A page that does not run to its end for another reason has noticed nothing.
    """
    committed = ROOT / "notebooks" / f"{name}.ipynb"
    executed = out / f"{name}.ipynb"
    options = ["--kernel", "python3", "--no-progress-bar", "--log-level", "ERROR"]
    command = [sys.executable, "-m", "papermill", str(committed), str(executed)]
    command += ["--cwd", str(ROOT), *options]
    environment = os.environ | {"CARRY_DATA": str(data), "OMP_NUM_THREADS": "1"}
    for _ in range(ATTEMPTS):
        result = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False
        )
        if result.returncode == 0:
            return bool(differences(nbformat.read(committed, 4), nbformat.read(executed, 4)))
        if FALSE_FACT in result.stderr:
            return True
    print(f"{name} does not run to its end on broken weights:")
    for line in result.stderr.strip().splitlines()[-3:]:
        print(f"  {line}")
    return False


def main(arguments: Sequence[str]) -> int:
    """Name the pages that did not notice; return 1 if there are any."""
    if "--all" in arguments:
        all_names = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
        names = sorted(all_names - BLIND)
    else:
        names = list(arguments) or list(QUICKEST)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(AT_ONCE) as pool:
        data = Path(folder) / "data"
        out = Path(folder) / "out"
        out.mkdir()
        write_broken_data(data)
        noticed = list(pool.map(lambda name: notices(name, data, out), names))
    for name, has_noticed in zip(names, noticed, strict=True):
        if not has_noticed:
            print(f"{name} shows the same although a final MLP is broken")
    print(f"{sum(noticed)} of {len(names)} pages differ where a run's final MLP was broken.")
    return int(not all(noticed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
