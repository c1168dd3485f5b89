"""The run groups of the paper: what was trained, by the author's names."""

from dataclasses import dataclass

from carry_core.errors import BadInput
from carry_core.model import ModelConfig
from carry_core.sums import n_sums

# random longer sums of a padded group: the first ones prime, the rest test (App. H)
N_LONG = 20_000


@dataclass(frozen=True)
class Group:
    """Runs that differ only in seed (App. A, C, D, F, H)."""

    name: str
    config: ModelConfig
    # of all sums, in the training set and again in the test set (the paper's s)
    fraction: float = 0.3
    decay: float = 0.2  # weight decay (the paper's lambda)
    # of the sums in the training set; `config.width` is larger where they are padded
    n_digits: int = 3
    batch: int = 1024
    epochs: int = 1000
    n_runs: int = 6
    primed: int = 0  # longer sums that join the training set, or make it up when finetuning
    snapshots: tuple[int, ...] = ()  # epochs whose weights are kept beside the last
    parent: tuple[str, int] | None = None  # group and epoch that finetuning starts from
    # its history has the accuracies per carry class without the final MLP (Fig. 5)
    tracks_final_mlp: bool = False

    def __str__(self) -> str:
        """In words: "2 layers, 30% of the sums, weight decay 0.2"."""
        config = self.config
        parts = [f"{config.layers} layer{'s' * (config.layers > 1)}"]
        parts += ["causal"] * config.causal + [f"{self.n_digits} digits"] * (self.n_digits != 3)
        parts += [f"d_ff {config.d_ff}"] * (config.d_ff != ModelConfig.d_ff)
        parts += [f"{100 * self.fraction:.0f}% of the sums", f"weight decay {self.decay}"]
        parts += [f"padded to {config.width} digits"] * self.padded
        if self.parent is not None:
            parts.append(
                f"from epoch {self.parent[1]} finetuned on {self.primed} {config.width}-digit sums"
            )
        elif self.primed:
            parts.append(f"with {self.primed} {config.width}-digit sums")
        return ", ".join(parts)

    @property
    def padded(self) -> bool:
        return self.config.width > self.n_digits

    @property
    def n_train(self) -> int:
        """Sums in the training set: 150,150 for three digits at s = 0.3, priming sums included."""
        return self.primed + (0 if self.parent else round(self.fraction * n_sums(self.n_digits)))

    @property
    def steps(self) -> int:
        """Optimiser steps in an epoch; the last batch is short."""
        return -(-self.n_train // self.batch)

    def planned_epochs(self, steps: int | None) -> int:
        """Epochs that so many optimiser steps make, rounded; the group's own for None, and where it is finetuned."""
        if steps is None or self.parent is not None:
            return self.epochs
        return max(1, round(steps / self.steps))


MAIN = "n2_s0.3_w0.2"
# Optimiser steps of each recipe in all, None for the group's own epochs; what else they are is in
# training/recipes.py.
RECIPES = {"paper": None, "quick": 8820}
_PAD6 = ModelConfig(width=6)
_LISTED = (  # what figures need most comes first
    Group(MAIN, ModelConfig(), tracks_final_mlp=True),
    Group("n1_s0.3_w0.2", ModelConfig(layers=1)),
    Group("n3_s0.3_w0.2", ModelConfig(layers=3)),
    Group("decoder_n2_s0.3_w0.2", ModelConfig(causal=True)),
    Group("n2_s0.2_w1.0_dff512", ModelConfig(d_ff=512), fraction=0.2, decay=1.0),
    Group("pad6_n2_s0.3_w0.2", _PAD6, epochs=2500, snapshots=(500, 1000)),
    Group("pad6_primed100_n2_s0.3_w0.2", _PAD6, primed=100),
    Group("n1_s0.3_w0.0", ModelConfig(layers=1), decay=0.0),
    Group("n1_s0.2_w1.0", ModelConfig(layers=1), fraction=0.2, decay=1.0),
    Group("n2_s0.3_w0.0", ModelConfig(), decay=0.0),
    Group("n2_s0.1_w0.2", ModelConfig(), fraction=0.1),
    Group("n2_s0.3_w0.2_dff1024", ModelConfig(d_ff=1024)),
    Group(
        "digits4_n2_s0.3_w0.2",
        ModelConfig(width=4),
        n_digits=4,
        batch=8192,
        n_runs=1,
        tracks_final_mlp=True,
    ),
    Group(
        "pad6_finetuned500_n2_s0.3_w0.2",
        _PAD6,
        primed=500,
        epochs=50,
        parent=("pad6_n2_s0.3_w0.2", 500),
    ),
    Group("pad10_primed500_n2_s0.3_w0.2", ModelConfig(width=10), primed=500),
    Group("decoder_pad6_primed500_n2_s0.3_w0.2", ModelConfig(width=6, causal=True), primed=500),
)
GROUPS = {group.name: group for group in _LISTED}
# absent from the paper
RELEASED_ONLY = {"pad5_n2_s0.3_w0.2": Group("pad5_n2_s0.3_w0.2", ModelConfig(width=5))}


def find(name: str) -> Group:
    """The group called `name`; `BadInput` if there is none."""
    group = (GROUPS | RELEASED_ONLY).get(name) if isinstance(name, str) else None
    if group is None:
        raise BadInput(f"Unknown group {name!r}: expected one of {', '.join(GROUPS)}.")
    return group
