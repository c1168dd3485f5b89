"""What the paper prints and states: every number and every finding, as `data/claims.yml` has them."""

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from carry_core import carries
from carry_core.errors import BadInput
from carry_core.files import RESOURCES, data_dir

BEYOND = "Beyond the paper"  # the section of rows that put its claims in other terms
# Carry patterns by their names in ids: `C_all_con` for `C all con.`.
CLASSES = {carries.paper_name(p).replace(".", "").replace(" ", "_"): p for p in carries.patterns(3)}
KINDS = {"accuracy": "accuracy", "corrected": "corrected accuracy"}
FLOATS = {"fig": "Figure", "tab": "Table", "app": "Appendix"}


@dataclass(frozen=True)
class Claim:
    """One published number, or one finding; the head of `data/claims.yml` says what each field is.

    A number has a `rule` of `verdicts.RULES`, a finding no `paper`, and a `quantifier` of `verdicts.QUANTIFIERS`.
    """

    id: str
    where: str
    paper: Any
    notebook: str
    heading: str
    reason: str
    rule: str = ""
    quantifier: str = ""
    note: str = ""
    unit: float | int = 0.01
    range: float | int = 1.0
    single: bool = False
    title: str = ""
    claim: str = ""
    measure: str = ""

    @property
    def finding(self) -> bool:
        """Whether the paper says it in words; a row beyond the paper puts that in other terms."""
        return self.paper is None and self.section != BEYOND

    @property
    def section(self) -> str:
        """Its part of the ledger, such as `Table 1`."""
        return self.heading.partition(", ")[0]

    @property
    def part(self) -> str:
        """What the rows around it have in common, such as `without the final MLP`; empty if nothing."""
        return self.heading.partition(", ")[2]

    @property
    def words(self) -> str:
        """What a number is of, or what a finding says."""
        if self.title or self.paper is None:
            text = self.title or self.claim
        else:
            _, _, pattern, kind, position = self.id.split("/")
            name, digit = carries.paper_name(CLASSES[pattern]), position.removeprefix("pos")
            text = f"{self.part}: {name}, {KINDS[kind]} at position {digit}"
        return text[:1].upper() + text[1:]

    @property
    def page(self) -> str:
        """The notebook that shows it in words, such as `Table 1`."""
        found = re.match(r"(fig|tab|app)_?0?(\d+|[a-z])_", self.notebook)
        return f"{FLOATS[found[1]]} {found[2].upper()}" if found else self.notebook.capitalize().replace("_", " ")


def claims() -> dict[str, Claim]:
    """All claims of `data/claims.yml` by id; `BadInput` if it is no list of them. A test checks what each says."""
    path = data_dir() / "claims.yml"
    if not path.exists():
        path = RESOURCES / "claims.yml"  # installed without the repository's data
    try:
        return _read(path, path.stat().st_mtime_ns)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, TypeError, KeyError) as error:
        why = " ".join(str(error).split())
        raise BadInput(f"Cannot read {path} ({why}): restore it with `git checkout {path}`.") from error


@lru_cache(maxsize=2)
def _read(path: Path, _modified: int) -> dict[str, Claim]:
    rows = yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return {row["id"]: Claim(**row) for row in rows}


def chosen(only: str = "") -> list[Claim]:
    """The claims whose id starts with `only`; `BadInput` if there are none."""
    found = [claim for claim in claims().values() if claim.id.startswith(only)]
    if not found:
        known = dict.fromkeys(name.split("/")[0] for name in claims())
        raise BadInput(f"No id of the ledger starts with {only!r}; expected one that starts with {', '.join(known)}.")
    return found
