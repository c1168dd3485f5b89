"""HTML for a page, made from the templates of this folder."""

import re
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from jinja2 import Environment, FileSystemLoader

from carry_paper.ledger.report import in_words
from carry_paper.pages import row_words, strips

# The sign of each verdict, in the order in which they are listed.
SIGNS = {
    "reproduced": "✓",
    "mostly": "≈",
    "mixed": "±",
    "can't tell": "?",
    "differs": "≠",
    "no verdict": "·",
    "not run": "–",
}


@dataclass(frozen=True)
class Html:
    """HTML for `pages.show`, with a `text` for places that cannot show HTML.

    Its `data` are those behind it, if it is a table.
    """

    html: str
    text: str
    data: pd.DataFrame | None = None

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.text


def slug(name: str) -> str:
    """Return a name as it is written in ids and classes of HTML."""
    return name.lower().replace(" ", "-").replace("'", "")


def short(number: int | float) -> str:
    """Return a number as SVG has it, without zeros at its end."""
    return f"{number:g}"


def unbroken(place: str) -> str:
    """Return a place in the paper, such as `Sec. 5, Fig. 13–14`, that breaks after commas only."""
    in_parts = re.sub(r"(?<!,) ", "\N{NO-BREAK SPACE}", place)
    return re.sub(r"(?<=\d)-(?=\d)", "–", in_parts)


def environment() -> Environment:
    """Return an environment that has the templates, and in them the verdicts' `signs`."""
    jinja = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja.globals |= {
        "signs": SIGNS,
        "lane_height": strips.HEIGHT,
        "widest": strips.RADIUS,
        "whose": strips.WHOSE,
        "verdict_in_words": in_words,
        "meaning": row_words.meaning,
    }
    jinja.filters |= {
        "slug": slug,
        "short": short,
        "unbroken": unbroken,
        "sentence": row_words.sentence,
        "words": row_words.words,
    }
    return jinja
