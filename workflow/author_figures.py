"""Run the pages on the author's imported release: to store what their figures draw, or to compare.

`author_figures.py store [NOTEBOOK ...]` writes data/results/author/, and `check` compares it with
what the pages compute now. Without names, all pages that show the author's side are run.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parent.parent
CALL = "page.beside("  # in the source of a page that shows the author's side
NOT_RELEASED = "from author in"  # in the message of a page whose group he did not release
SCRATCH = ROOT / "_build" / "author"


def run(notebook: Path, task: str) -> str:
    """Run a page with `source = "author"`, and return what went wrong, or ""."""
    command = [sys.executable, "-m", "papermill", str(notebook), str(SCRATCH / notebook.name)]
    command += ["-p", "source", "author", "--kernel", "python3", "--cwd", str(ROOT)]
    command += ["--no-progress-bar", "--log-level", "ERROR", "--no-request-save-on-cell-execute"]
    environment = {**os.environ, "CARRY_AUTHOR_FIGURES": task, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    message = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1]
    return "" if NOT_RELEASED in message else message


def main(task: str, names: list[str]) -> int:
    """Run the pages, and return the exit status."""
    notebooks = [Path(name) for name in names] or sorted((ROOT / "notebooks").glob("*.ipynb"))
    SCRATCH.mkdir(parents=True, exist_ok=True)
    pages = [path for path in notebooks if CALL in path.read_text(encoding="utf-8")]
    n_failed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for page, failed in zip(pages, pool.map(lambda page: run(page, task), pages), strict=True):
            print(f"{page.stem}: {failed or 'done'}", flush=True)
            n_failed += bool(failed)
    return 1 if n_failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] not in (["store"], ["check"]):
        sys.exit(f"{' '.join(sys.argv[1:])}: expected store or check, then notebooks or none")
    sys.exit(main(sys.argv[1], sys.argv[2:]))
