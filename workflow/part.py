"""Print the notebooks of one part of the book, for `make nbval`: part.py 2/8, or part.py commit.

`commit` takes the part that the hash of the checked-out commit falls on. The same commit always has
the same part, and over many commits every part is taken. `part.py number` prints that hash as a
number, by which tests are ordered.
"""

import subprocess
import sys
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parent.parent
PARTS = 8  # of `commit`


def commit_number() -> int:
    """Return the hash of HEAD as a number, or the number of the day if git cannot tell."""
    command = ["git", "rev-parse", "HEAD"]
    try:
        answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return date.today().toordinal()
    return int(answer.stdout, 16)


def parse(text: str) -> tuple[int, int]:
    """Read `2/8` as (2, 8); end the program with a line for anything else."""
    first, _, second = text.partition("/")
    if first.isdecimal() and second.isdecimal() and 1 <= int(first) <= int(second):
        return int(first), int(second)
    sys.exit(
        f"PART={text}: expected commit, or a number and how many parts there are, such as PART=2/8"
    )


def notebooks(part: int, parts: int) -> list[str]:
    """List every `parts`-th notebook in the order of names, from the `part`-th on."""
    names = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("notebooks/*.ipynb"))
    return names[part - 1 :: parts]


def main(text: str) -> None:
    """Print the notebooks of a part on stdout, and how many they are on stderr; or a number."""
    if text == "number":
        print(commit_number())
        return
    part, parts = parse(text) if text != "commit" else (commit_number() % PARTS + 1, PARTS)
    names = notebooks(part, parts)
    print(f"PART={part}/{parts}: {len(names)} notebooks", file=sys.stderr)
    print(*names)


if __name__ == "__main__":
    main(sys.argv[1])
