"""Minus signs in place of the hyphens that Python prints before numbers."""

import re

# Before a number or after the `e` of an exponent, but not inside a word or a range such as 0-5.
HYPHEN = re.compile(r"(?<!\w)-(?=[\d.])|(?<=\de)-(?=\d)")
# Before a number that is rounded to zero, such as -0.00.
OF_ZERO = re.compile(r"(?<!\w)-(?=0(?:\.0+)?(?![\d.]))")


def minus_signs(text: str) -> str:
    """Return the text with minus signs for the hyphens that begin numbers or exponents.

    Zero has none.
    """
    return HYPHEN.sub("−", OF_ZERO.sub("", text))
