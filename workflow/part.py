"""Print the notebooks of one part of the book, for `make nbval`: part.py 2/8, or part.py commit.

`commit` takes the part that the hash of the checked-out commit falls on: the same one whenever that
commit is tested, another one as commits go by.
"""

import subprocess
import sys
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parent.parent
PARTS = 8  # of `commit`


def of_commit(root: Path = ROOT) -> tuple[int, int]:
    """Choose a part by the hash of HEAD, or by the day where git does not say."""
    asked = ["git", "rev-parse", "HEAD"]
    answer = subprocess.run(
        asked, cwd=root, capture_output=True, text=True, check=False
    ).stdout.strip()
    number = int(answer, 16) if answer else date.today().toordinal()
    return number % PARTS + 1, PARTS


def parse(text: str) -> tuple[int, int]:
    """Read `2/8` as (2, 8).

    Raises:
        SystemExit: anything else, in one line.
    """
    first, _, second = text.partition("/")
    if first.isdecimal() and second.isdecimal() and 1 <= int(first) <= int(second):
        return int(first), int(second)
    sys.exit(
        f"PART={text}: expected commit, or a number and how many parts there are, such as PART=2/8"
    )


def notebooks(part: int, parts: int, root: Path = ROOT) -> list[str]:
    """List every `parts`-th notebook in the order of names, from the `part`-th on."""
    names = sorted(path.relative_to(root).as_posix() for path in root.glob("notebooks/*.ipynb"))
    return names[part - 1 :: parts]


if __name__ == "__main__":
    part, parts = of_commit() if sys.argv[1] == "commit" else parse(sys.argv[1])
    chosen = notebooks(part, parts)
    print(f"PART={part}/{parts}: {len(chosen)} notebooks", file=sys.stderr)
    print(*chosen)
