"""Minus signs in place of the hyphens that Python prints before numbers."""

import re

# Before a number or after the `e` of an exponent, but not inside a word or a range such as 0-5.
HYPHEN = re.compile(r"(?<!\w)-(?=[\d.])|(?<=\de)-(?=\d)")


def minus_signs(text: str) -> str:
    """Return a text in which each hyphen that begins a number or an exponent is a minus sign."""
    return HYPHEN.sub("−", text)
