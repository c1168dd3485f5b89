"""What the ledger's rows are called in words: their sections, and a title for each id."""

import re
from dataclasses import dataclass

from carry_core import carries
from carry_core.ledger.claims import Claim


@dataclass(frozen=True)
class Section:
    """A part of the ledger.

    Attributes:
        key: its name in the address of the claims page.
        title: its name in words.
        parts: by the beginning of their ids, what its rows have in common.
    """

    key: str
    title: str
    parts: dict[str, str]


SECTIONS = (
    Section(
        "tab1",
        "Table 1",
        {"tab1/decision_head": "without the decision head", "tab1/final_mlp": "without the final MLP"},
    ),
    Section("tab2", "Table 2", {"tab2": "language models"}),
    Section("tab3", "Table 3", {"tab3": "three layers without the final MLP"}),
    Section("tab4", "Table 4", {"tab4": "dissected, with d_ff 512"}),
    Section(
        "tab5",
        "Table 5",
        {"tab5/final_mlp": "decoder without the final MLP", "tab5/dissected": "decoder, dissected"},
    ),
    Section("data", "The sums", {"data/": ""}),
    Section("layers", "Two and three layers", {"n": ""}),
    Section("decoder", "Decoder", {"decoder/": ""}),
    Section("digits4", "Four digits", {"digits4/": ""}),
    Section("long", "Longer sums", {"pad6": "", "decoder_pad6": "decoder"}),
    Section("llm", "Language models", {"llm/": ""}),
    Section("findings", "What the paper says in words", {"finding/": ""}),
)
OTHERS = Section("others", "Others", {"": ""})
MODELS = {
    "n2": "Two layers", "n2_w0": "Two layers without weight decay", "n2_s01": "Two layers, a tenth of the sums",
    "n2_dff1024": "Two layers, d_ff 1024", "n2_dff512": "Two layers, d_ff 512", "n3": "Three layers",
    "decoder": "Decoder", "digits4": "Four digits", "pad6": "Padded to six digits",
    "pad6_primed": "Padded and primed", "pad6_finetuned": "Padded and finetuned",
    "decoder_pad6_primed": "Padded decoder, primed", "llm": "Language models", "tab2": "Language models",
    "data": "The sums",
}  # fmt: skip
WORDS = {
    "accuracy": "accuracy", "corrected": "corrected accuracy", "carry_accuracy": "accuracy where a one is needed",
    "carry_corrected": "corrected accuracy where a one is needed",
    "non_carry_accuracy": "accuracy where none is needed", "neurons": "neurons that carry",
    "no_skip_accuracy": "accuracy without the skip connections of layer 0",
    "decision_head_spread": "spread between runs without the decision head",
    "final_pcc": "correlation with a model that cannot carry", "evolution": "after training",
    "runs_full_mlp_ablation_works": "runs that can do without the final MLP", "final_mlp": "without the final MLP",
    "dissection": "dissection", "squashing": "squashing of the sums to 74",
    "ablate_head_1_0": "without the other head", "accuracy_range": "six-digit accuracy, lowest and highest",
    "accuracy_epoch500": "six-digit accuracy at epoch 500", "accuracy_epoch1000": "six-digit accuracy at epoch 1000",
    "accuracy6": "six-digit accuracy", "accuracy3": "three-digit accuracy", "fraction": "share of primed sums",
    "weight_norm_before": "squared norm before", "weight_norm_after": "squared norm after",
    "weight_norm_change": "relative change of the squared norm", "carry_mistakes": "mistakes that are in carrying",
    "first_position_accuracy": "accuracy of the first digit", "addition_heads": "heads that add",
    "staircase_heads": "heads with staircases", "ablated_accuracy": "accuracy without a pair of heads",
    "sums3": "three-digit sums", "sums4": "four-digit sums", "vocabulary": "tokens",
    "sequence_length3": "length of the input", "classes3": "carry classes of three digits",
    "classes4": "carry classes of four digits", "classes6": "carry classes of six digits",
    "train3": "three-digit sums to train on", "alpaca": "Alpaca 7B", "llemma": "Llemma 7B", "zephyr": "Zephyr 7B",
    "0": "first pair", "1": "second pair",
}  # fmt: skip


def place(name: str) -> tuple[Section, str]:
    """The section of an id, and what it has in common with the ids around it there."""
    for section in SECTIONS:
        for beginning, part in section.parts.items():
            if name.startswith(beginning):
                return section, part
    return OTHERS, ""


def heading(name: str) -> str:
    """What stands above the rows around an id."""
    section, part = place(name)
    return f"{section.title}, {part}" if part else section.title


def title(claim: Claim) -> str:
    """A claim in words: what a finding says, or what a number is of."""
    if claim.paper is None:
        return claim.claim[:1].upper() + claim.claim[1:]
    first, *rest = claim.id.split("/")
    if len(rest) == 4:  # a cell of a table of classes and positions
        (_, part), (_, pattern, kind, position) = place(claim.id), rest
        words = [
            carries.paper_name(carries.parse_class(pattern)),
            WORDS[kind],
            f"at position {position.removeprefix('pos')}",
        ]
        return f"{part[:1].upper() + part[1:]}: {words[0]}, {' '.join(words[1:])}"
    words = [re.sub(r"^pos(\d)$", r"position \1", WORDS.get(word, word.replace("_", " "))) for word in rest]
    return f"{MODELS.get(first, first)}: {', '.join(words)}"


def page(notebook: str) -> str:
    """A notebook in words, such as `Table 1`."""
    if found := re.match(r"(fig|tab)(\d+)_", notebook):
        return f"{'Figure' if found[1] == 'fig' else 'Table'} {int(found[2])}"
    if found := re.match(r"app_([a-z])_", notebook):
        return f"Appendix {found[1].upper()}"
    return notebook[:1].upper() + notebook[1:].replace("_", " ")
