"""Prose says things as the field does: `carry` and not `one`, `correct` and not `right`."""

import re
from collections.abc import Iterator

import nbformat

from carry_core.files import ROOT
from carry_paper.ledger.claims import claims

# Ways to say something that readers stumbled over, and what to say.
DIALECT = [
    (r"\b(?:runs?|models?|heads?|weights|decoders?) of ours\b", "our runs"),
    (r"\bof (?:ours|the author[’']s) and in\b", "of our six runs and in"),
    (r"\b(?:run|runs|model) of the author[’']s\b", "an author's run"),
    (r"\b(?:carried|undue) ones?\b|\bundue\b", "carries"),
    (r"\bones (?:are (?:added|carried|due|forgotten)|too (?:few|many))\b", "carries"),
    (r"\b(?:carr(?:y|ies)|receives?|needs?|passes|adds?) a one\b", "a carry"),
    (r"\b(?:a|no) one is (?:carried|due|added)\b", "a carry"),
    (r"\b(?:gets?|got|answered|answers?|stays?|are|become|comes?|came) right\b", "correct"),
    (r"\bgets? (?:[\w.,%-]+ ){1,6}right\b(?! of| side| hand)", "correct"),
    (r"\bright (?:answers?|digits?)\b", "correct answers"),
    (r"\bstands? (?:at|above|below|beside|over|firmly|more firmly|there)\b", "is"),
    (r"\bstands? in (?:the|a|its|no|this|that|all|none|\d)", "is in"),
    (r"\bwhere (?:each|every|it|a|the) [\w ]{0,20}stands?\b", "is"),
    (r"\blast MLP\b", "final MLP"),
    (r"\b[Cc]olumn sums?\b", "digit sum"),
    (r"\b[Pp]os\. ?\d", "position 7, or hundreds"),
    (r"\b(?:[Ii]ntact|[Uu]ntouched),? all \d", "unablated"),
    (r"\bwhat becomes of\b", "how … changes"),
    (r"\ba head[’']s number means nothing\b", "head numbers are arbitrary"),
    (r"\bschoolbook\b", "textbook, or column method"),
]

# Code, glued words, addresses, and what others say.
NOT_OURS = re.compile(
    r"""
    ```\{raw\}.*?``` | ```(?:bash|python|text|html)?\n.*?```  # blocks of code
    | \{[\w:]+\}`[^`]*` | `[^`]*`                            # roles, and code in a sentence
    | \]\([^)]*\)                                           # addresses
    | ::::\{admonition\}.*?\n::::\n                           # rules of an earlier day
    | “[^”]*” | "[^"]*" | \*needs\ a\ carried\ one\*         # quotations
    """,
    re.DOTALL | re.VERBOSE,
)


def texts() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each piece of prose."""
    for name in ("README.md", "CONTRIBUTING.md"):
        yield name, (ROOT / name).read_text()
    changelog = (ROOT / "CHANGELOG.md").read_text()
    yield "CHANGELOG.md", changelog.partition("## [Unreleased]")[2].partition("\n## [")[0]
    for path in sorted((ROOT / "book").glob("*.md")):
        yield path.name, path.read_text()
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "markdown":
                yield f"{path.name}, {cell.id}", cell.source
            figure = cell.metadata.get("mystnb", {}).get("figure", {})
            yield f"{path.name}, {cell.id}, caption", figure.get("caption", "")
    for claim in claims().values():
        yield f"claims.yml, {claim.id}, short", claim.short
        for source, why in claim.why.items():
            yield f"claims.yml, {claim.id}, why of {source}", why.text


def phrases(text: str) -> list[str]:
    """Return what a text says in dialect, each with what to say."""
    prose = re.sub(r"\s+", " ", NOT_OURS.sub(" ", text))
    return [
        f"{phrase[0]!r}: say {better!r}"
        for pattern, better in DIALECT
        for phrase in re.finditer(pattern, prose)
    ]


def test_prose_is_in_the_words_of_the_field():
    dialect = {name: phrases(text) for name, text in texts() if phrases(text)}
    assert dialect == {}
