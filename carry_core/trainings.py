"""Trainings of one group side by side, by the author and by our recipes: how each went, and what it found inside."""

from collections.abc import Mapping
from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor

from carry_core import at_hand, groups, measure, runs
from carry_core.model import Transformer
from carry_core.runs import History, Runs


@dataclass(frozen=True)
class Training:
    """The runs of one group that were trained alike.

    Attributes:
        runs: their weights at the end.
        history: their learning curves; empty if there are none.
    """

    runs: Runs
    history: History

    @property
    def kind(self) -> str:
        """`author`, or by which recipe ours were trained."""
        return "author" if self.runs.source == "author" else str(self.runs.record["recipe"])


def of(group: str, source: str) -> dict[str, Training]:
    """Every training of a group that is there, by what to call it.

    Args:
        group: whose.
        source: `author` for the author's, `ours` for those and then ours by each recipe.

    Raises:
        BadInput: as `runs.load`, if a file is there.
    """
    found = {}
    if (runs.folder("author") / f"{group}.safetensors").exists():
        theirs = runs.load(group, "author")
        curves = (runs.folder("author") / f"{group}.history.npz").exists()
        found[at_hand.mark(theirs)] = Training(theirs, runs.history(group, "author") if curves else {})
    if source == "ours":
        there = ours(group)
        found |= {at_hand.mark(there[recipe].runs): there[recipe] for recipe in groups.RECIPES if recipe in there}
    return found


def ours(group: str) -> dict[str, Training]:
    """Our trainings of a group by recipe, that of the group's own file first.

    Raises:
        BadInput: as `runs.load`, if a file is there.
    """
    where = runs.folder("ours")
    own = [runs.load(group).record["recipe"]] if (where / f"{group}.safetensors").exists() else []
    beside = [recipe for recipe in groups.RECIPES if (where / recipe / f"{group}.safetensors").exists()]
    return {
        recipe: Training(runs.load(group, recipe=recipe), runs.history(group, recipe=recipe))
        for recipe in dict.fromkeys([*own, *beside])
    }


def alike(group: str, loaded: Runs) -> Training:
    """Runs of another group to compare `loaded` with: by the same recipe if there are such, else its own file's.

    Raises:
        BadInput: as `runs.load`.
    """
    if loaded.source == "ours" and (found := ours(group).get(loaded.record["recipe"])):
        return found
    return Training(runs.load(group, loaded.source), runs.history(group, loaded.source))


def compared() -> list[str]:
    """Groups of which ours were trained by both recipes, in the order of the campaign."""
    there = [runs.folder("ours"), *(runs.folder("ours") / recipe for recipe in groups.RECIPES)]
    return [name for name in groups.CAMPAIGN if sum((where / f"{name}.safetensors").exists() for where in there) > 1]


def told(found: Mapping[str, Training]) -> str:
    """Where each training's weights come from, a line each, for the page."""
    return "\n".join(f"- **{name}**: {training.runs.provenance}" for name, training in found.items())


def inside(model: Transformer, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"], n_digits: int) -> dict[str, float]:
    """What one run does with the sums, and what it needs for it (Sec. 3 to 5), by what to call it.

    With one layer nothing reads the rows of the digits: attention is that of the answer's rows (Fig. 2).

    Args:
        model: the run.
        a, b: the sums' two numbers.
        n_digits: their digits.
    """
    last = measure.last_layer(model, a, b, n_digits)
    pattern, layout = measure.attention(model, a, b)[0], model.config.layout
    found = {
        "whole answers": last.intact.whole,
        "lost without the decision head": last.intact.whole - last.decision.whole,
        "lost without the last layer’s other head": last.intact.whole - last.other.whole,
    }
    if model.config.layers == 1:
        own = measure.column_mass(pattern, layout)[:, -n_digits:].amax(0)
        return found | {"the least attention that a row of the answer gives its own column": float(own.min())}
    correlation = measure.pearson(last.mlp, measure.cannot_carry(n_digits))
    return found | {
        "without the final MLP: correlation with a model that cannot carry": correlation,
        "staircase: the least attention that a digit gives its partner": float(
            measure.partner_mass(pattern, layout).amax(0).min()
        ),
    }


def insides(found: Mapping[str, Training], group: str, n_examples: int, seed: int) -> dict[str, list[dict[str, float]]]:
    """`inside` for every run of a group's trainings, on the same random sums of each class."""
    n_digits = groups.find(group).n_digits
    a, b = measure.sample(n_examples, n_digits, seed)
    return {
        name: [inside(model, a, b, n_digits) for _, model in training.runs.models()] for name, training in found.items()
    }
