"""Does the comparison of outputs notice broken weights? Break the final MLP of each group's run 0, and see.

Every page that looks at a final MLP has to differ from what is committed. `make test` asks this of
a few of them, `--all` of every one; names on the command line, such as tab04_dissection, choose
others.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
from compare import ROOT, differences
from safetensors import safe_open
from safetensors.torch import save_file

QUICKEST = ("beyond_74", "fig13_carry_axis_dff512", "fig24_primed_journey")
BLIND = {
    *("app_g_alpaca", "fig06_llemma", "tab02_language_models"),  # language models
    *("claims", "figure_by_figure"),  # the committed ledger
    *("fig02_one_layer_transition", "fig11_learning_dynamics"),  # learning curves
    # the stream before the MLP, or without it
    *("fig05_mlp_evolution", "fig17_pentagon", "fig22_unprimed_journey"),
}


def mutate(data: Path) -> None:
    """Make `data` a copy of the repository's in which each group's run 0 has a broken final MLP."""
    for source in (path for path in (ROOT / "data").rglob("*") if path.is_file()):
        name = source.relative_to(ROOT / "data")
        if name.parts[0] in ("author", "checkpoints") or name.name in (
            "manifest.json",
            "SHA256SUMS",
        ):
            continue  # the checksums would give it away
        target = data / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if name.parts[0] == "runs" and name.name == "run0.safetensors":
            break_mlp(source, target)
        else:
            target.symlink_to(source)


def break_mlp(source: Path, target: Path) -> None:
    """Write weights again, in which the last MLP's neurons see their input negated, and add nothing to the stream."""
    with safe_open(source, "pt") as file:
        tensors, metadata = {key: file.get_tensor(key) for key in file.keys()}, file.metadata()  # noqa: SIM118
    last = max(int(key.split("blocks.")[1].split(".")[0]) for key in tensors if "blocks." in key)
    for key, tensor in tensors.items():
        if f"blocks.{last}.up." in key:
            # not zero: the neurons' activations change, and pages that divide by their spread still
            # run
            tensor.neg_()
        if f"blocks.{last}.down." in key:
            tensor.zero_()
    save_file(tensors, target, metadata)


def red(name: str, data: Path, out: Path) -> bool:
    """Whether a page made from `data` fails, or differs from what is committed."""
    path, executed = ROOT / "notebooks" / f"{name}.ipynb", out / f"{name}.ipynb"
    command = [
        sys.executable,
        "-m",
        "papermill",
        path,
        executed,
        "--kernel",
        "python3",
        "--cwd",
        ROOT,
    ]
    command += ["--no-progress-bar", "--log-level", "ERROR"]
    environment = os.environ | {"CARRY_DATA": str(data), "OMP_NUM_THREADS": "1"}
    for _ in range(2):  # two kernels that start at once may want one port
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if not ran.returncode:
            break
    if ran.returncode:
        print(
            f"{name} does not run to its end on broken weights:",
            *ran.stderr.strip().splitlines()[-3:],
            sep="\n  ",
        )
        return False
    return bool(differences(nbformat.read(path, 4), nbformat.read(executed, 4)))


def main(arguments: Sequence[str]) -> int:
    """Say which pages did not notice; 1 if there are any."""
    every = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")} - BLIND
    names = sorted(every) if "--all" in arguments else list(arguments) or list(QUICKEST)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        data, out = Path(folder) / "data", Path(folder) / "out"
        out.mkdir()
        mutate(data)
        blind = [
            n
            for n, seen in zip(names, pool.map(lambda n: red(n, data, out), names), strict=True)
            if not seen
        ]
    for name in blind:
        print(f"{name} shows the same although a final MLP is broken")
    print(
        f"{len(names) - len(blind)} of {len(names)} pages differ where a run's final MLP was broken."
    )
    return int(bool(blind))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
