"""Text in pages that a command writes, between two comments such as `<!-- make shipped -->`."""

import re
import sys
from pathlib import Path

from carry_train.files import replacing


def pattern(mark: str) -> re.Pattern[str]:
    """Return the pattern of what stands between a mark and its end."""
    return re.compile(rf"(?<=<!-- {mark} -->\n).*?(?=<!-- /{mark} -->)", re.DOTALL)


def find(page: Path, mark: str) -> list[str]:
    """Return what a page has between each pair of these marks."""
    return pattern(mark).findall(page.read_text(encoding="utf-8"))


def replace(page: Path, mark: str, text: str) -> None:
    """Replace what a page has between a pair of marks, which it must have."""
    if not find(page, mark):
        sys.exit(
            f"{page} has no text to replace: expected lines <!-- {mark} --> and <!-- /{mark} -->."
        )
    replaced = pattern(mark).sub(lambda _: text, page.read_text(encoding="utf-8"))
    with replacing(page) as temporary:
        temporary.write_text(replaced, encoding="utf-8")
