"""Run the tests as on other machines: all of `make machines`, or MACHINES="no-node turkish".

Each entry of `MACHINES` is this machine with something hidden, set or added. Those of `WHOLE` run
what the README promises, `make book` and then `make test`, in a fresh clone; those of `MARKED` run
the tests with the marker `machine`, whose outcome may depend on the machine. A line for each says
how that ended; the logs are in `_build/machines`.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import TextIO

import part

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "_build" / "machines"

FAILED = "FAILED"

# How many of the last lines of a failed machine's log are printed: CI keeps no files.
LINES_SHOWN = 40

# Programs, by patterns of their names.
CHROMIUM = ("chromium*", "google-chrome*", "chrome")
NODE = ("node", "nodejs", "npm", "npx", "tsc")
COMPILERS = ("*g++*", "*gcc*", "c++*", "clang*", "cc", "c89*", "c99*")
GIT = ("git",)

# Commands of the shell that make a checkout of the last commit. The clone shares no file with this
# one, so that it can be given to another user.
CLONE = 'git clone --quiet --no-hardlinks "$ROOT" "$CHECKOUT"'
SHALLOW = 'git clone --quiet --depth 1 "file://$ROOT" "$CHECKOUT"'
TARBALL = 'mkdir "$CHECKOUT" && git -C "$ROOT" archive HEAD | tar --extract --directory "$CHECKOUT"'

# Ubuntu's chromium without snap is such a script.
STUB = "echo 'this Chromium does not start'; exit 1"
NOBODY = "setpriv --reuid=nobody --regid=nogroup --clear-groups"


@dataclass(frozen=True)
class Machine:
    """A machine, by what differs from this one.

    Attributes:
        environment: Variables that are set; `{folder}` is the machine's own folder.
        hidden: Patterns of the programs that are not in PATH.
        prepare: A command of the shell, run first, in the machine's folder. Where it fails, the
            machine cannot be simulated. If it makes a folder `bin`, that comes first in PATH.
        checkout: A command of the shell that makes another checkout, which gets its own `.venv`.
        checkout_name: The name of that checkout's folder.
        make: The command that runs `targets`.
        targets: What `make` is asked for, one after the other.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()
    prepare: str = ""
    checkout: str = ""
    checkout_name: str = "carry"
    make: str = "make"
    targets: tuple[str, ...] = ("machine-test",)


BOOK_AND_TEST = ("book", "test")
WHOLE = {
    "no-programs": Machine(
        hidden=(*CHROMIUM, *NODE, *COMPILERS, *GIT), checkout=CLONE, targets=BOOK_AND_TEST
    ),
    # MKL's other switches, such as MKL_ENABLE_INSTRUCTIONS, change nothing on an AMD processor.
    "generic-kernels": Machine(
        environment={
            "ATEN_CPU_CAPABILITY": "default",
            "ONEDNN_MAX_CPU_ISA": "SSE41",
            "MKL_CBWR": "COMPATIBLE",
            "OPENBLAS_CORETYPE": "Nehalem",
        },
        checkout=CLONE,
        targets=BOOK_AND_TEST,
    ),
    "newest-typescript": Machine(
        prepare="npm install --silent --no-audit --no-fund --prefix . typescript@latest"
        " && ln -s node_modules/.bin bin",
        checkout=CLONE,
        targets=BOOK_AND_TEST,
    ),
    "not-root": Machine(
        environment={"HOME": "{folder}/home", "USER": "nobody", "LOGNAME": "nobody"},
        prepare=f"mkdir home && {NOBODY} true",
        checkout=f"{CLONE} && chown --recursive nobody:nogroup .",
        make=f"{NOBODY} make",
        targets=BOOK_AND_TEST,
    ),
}
MARKED = {
    "no-chromium": Machine(hidden=CHROMIUM),
    "stub-of-chromium": Machine(
        hidden=CHROMIUM,
        prepare=f'mkdir bin && echo "{STUB}" > bin/chromium && chmod +x bin/chromium',
    ),
    "no-node": Machine(hidden=NODE),
    "no-compiler": Machine(hidden=COMPILERS),
    "cxx-none": Machine(environment={"CXX": "none"}),
    "no-git": Machine(hidden=GIT),
    "aten-default": Machine(environment={"ATEN_CPU_CAPABILITY": "default"}),
    "aten-avx2": Machine(environment={"ATEN_CPU_CAPABILITY": "avx2"}),
    "onednn-sse41": Machine(environment={"ONEDNN_MAX_CPU_ISA": "SSE41"}),
    "mkl-compatible": Machine(environment={"MKL_CBWR": "COMPATIBLE"}),
    "arm": Machine(environment={"CARRY_TEST_PROCESSOR": "fp asimd crc32"}),
    "one-thread": Machine(environment={"OMP_NUM_THREADS": "1"}),
    "four-threads": Machine(environment={"OMP_NUM_THREADS": "4"}),
    "plain-c": Machine(environment={"LC_ALL": "C", "TZ": "America/St_Johns"}),
    "turkish": Machine(
        environment={"LC_ALL": "tr_TR.UTF-8", "LOCPATH": "{folder}", "TZ": "Asia/Kathmandu"},
        prepare="localedef --inputfile tr_TR --charmap UTF-8 ./tr_TR.UTF-8",
    ),
    "no-home": Machine(environment={"HOME": "/dev/null/home"}),
    "spaces": Machine(checkout=CLONE, checkout_name="a folder with an ü"),
    "shallow": Machine(checkout=SHALLOW),
    "tarball": Machine(checkout=TARBALL),
    **{
        f"python-{version}": Machine(
            environment={"PYTHON": f"python{version}"},
            prepare=f"python{version} -c ''",
            checkout=CLONE,
        )
        for version in ("3.11", "3.12", "3.13")
    },
}
MACHINES = WHOLE | MARKED
# Variables of the user's, or of the make that runs this, which each machine sets for itself.
UNSET = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "OMP_NUM_THREADS", "PYTHON", "XDG_CACHE_HOME")


def path_without(hidden: Sequence[str], links: Path) -> Iterator[str]:
    """Yield the folders of PATH; one with hidden programs gives way to links to its others."""

    def is_hidden(program: Path) -> bool:
        return any(fnmatch(program.name, pattern) for pattern in hidden)

    for number, folder in enumerate(map(Path, os.get_exec_path())):
        programs = [*folder.iterdir()] if folder.is_dir() else []
        if not any(map(is_hidden, programs)):
            yield str(folder)
            continue
        replacement = links / str(number)
        replacement.mkdir(parents=True)
        for program in programs:
            if not is_hidden(program):
                (replacement / program.name).symlink_to(program)
        yield str(replacement)


def environment_of(machine: Machine, folder: Path) -> dict[str, str]:
    """Return the environment in which the machine's commands run."""
    environment = {name: value for name, value in os.environ.items() if name not in UNSET}
    for name, value in machine.environment.items():
        environment[name] = value.format(folder=folder)
    programs = [str(folder / "bin"), *path_without(machine.hidden, folder / "programs")]
    return environment | {"PATH": os.pathsep.join(programs)}


def simulate(name: str) -> str:
    """Run the machine's targets, whose output goes to a log; return how that ended."""
    machine = MACHINES[name]
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with (FOLDER / f"{name}.log").open("w", encoding="utf-8") as log:
        result = run(machine, folder, log)
    if result != FAILED:
        shutil.rmtree(folder)
    return result


def run(machine: Machine, folder: Path, log: TextIO) -> str:
    """Make the machine and run its targets; return how that ended, in a word or two."""
    preparing = {**os.environ, "ROOT": str(ROOT), "CHECKOUT": machine.checkout_name}
    environment = environment_of(machine, folder)

    def succeeds(command: str, cwd: Path, env: dict[str, str]) -> bool:
        log.write(f"$ {command}\n")
        log.flush()
        arguments = ["sh", "-c", command]
        done = subprocess.run(
            arguments, cwd=cwd, env=env, stdout=log, stderr=subprocess.STDOUT, check=False
        )
        return done.returncode == 0

    if not succeeds(machine.prepare, folder, preparing):
        return "cannot be simulated here"
    checkout = ROOT
    if machine.checkout:
        checkout = folder / machine.checkout_name
        if (ROOT.parent / "shared").is_dir():
            (folder / "shared").symlink_to(ROOT.parent / "shared")
        if not succeeds(machine.checkout, folder, preparing):
            return FAILED
    for target in machine.targets:
        if not succeeds(f"{machine.make} {target}", checkout, environment):
            return FAILED
    return "passed"


def chosen(names: Sequence[str]) -> list[str]:
    """Return the machines that are asked for: all of them without a name, one for `commit`."""
    if [*names] == ["commit"]:
        return [[*MARKED][part.commit_number() % len(MARKED)]]
    return [*names] or [*MACHINES]


def main(names: Sequence[str]) -> int:
    """Simulate these machines and print a line for each; return 1 if the tests fail on one."""
    if unknown := {*names} - {*MACHINES, "commit"}:
        expected = ", ".join(MACHINES)
        print(f"MACHINES={min(unknown)}: expected commit, or some of {expected}.", file=sys.stderr)
        return 2
    failed = []
    for name in chosen(names):
        start = time.monotonic()
        result = simulate(name)
        print(f"{name}: {result} ({time.monotonic() - start:.0f} s)", flush=True)
        if result == FAILED:
            failed.append(name)
    for name in failed:
        log = FOLDER / f"{name}.log"
        print(f"{name}: the end of {log.relative_to(ROOT)}:", file=sys.stderr)
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        print("\n".join(lines[-LINES_SHOWN:]), file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
