"""Build the sdist, and from it the wheel, into `_build/dist`.

The wheel is built in a folder of its own, so that nothing of an earlier build gets into it, and
what an sdist lacks is noticed. Nothing is downloaded: setuptools is in .venv.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "_build" / "dist"
BUILD = "import sys; from setuptools import build_meta; build_meta.{step}(sys.argv[1])"


def build(out: Path = DIST, root: Path = ROOT) -> tuple[Path, Path]:
    """Build both from the checkout `root`; return their paths in the folder `out`."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    run_step("build_sdist", out, root)
    (sdist,) = out.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(sdist) as archive:
            # Python 3.11.2, which Debian 12 has, knows no filter.
            archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
            archive.extractall(folder)
        (unpacked,) = Path(folder).iterdir()
        run_step("build_wheel", out, unpacked)
    (wheel,) = out.glob("*.whl")
    return sdist, wheel


def run_step(step: str, out: Path, source: Path) -> None:
    """Run a step of setuptools on a source tree; what it prints is shown only if it fails."""
    command = [sys.executable, "-c", BUILD.format(step=step), str(out)]
    environment = os.environ | {"SOURCE_DATE_EPOCH": commit_time()}
    ran = subprocess.run(
        command, cwd=source, env=environment, capture_output=True, text=True, check=False
    )
    if ran.returncode:
        sys.exit(f"{ran.stdout}{ran.stderr}\n{step} failed; setuptools's own words are above.")


def commit_time() -> str:
    """Return the time of the last commit, so that a commit always gives the same wheel."""
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:  # git is not installed
        return "0"
    return answer.stdout.strip() or "0"


if __name__ == "__main__":
    for path in build():
        print(path.relative_to(ROOT))
