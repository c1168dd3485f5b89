"""What the paper claims in words about training: the kink of the loss (Sec. 5), and what weight decay does (App. B).

As in `behaviour`, a row's `reason` in `data/claims.yml` says when a run counts as showing a finding.
"""

import torch

from carry_core import criteria, dynamics, geometry, sums
from carry_core.errors import BadInput
from carry_core.groups import MAIN
from carry_core.ledger.behaviour import finding, per_model, result
from carry_core.ledger.evidence import Evidence
from carry_core.ledger.readings import N1, Found, listed
from carry_core.model import Transformer

N1_W0 = "n1_s0.3_w0.0"
ORDERED = 5_000  # random sums whose digits' order is looked at


@finding("kink")
def kink(evidence: Evidence) -> Found:
    """Sec. 5, Fig. 5: the correlation starts to rise at the kink, and the loss then falls exponentially."""
    curves = evidence.curves(MAIN)
    evolutions = dynamics.evolutions(curves)
    if not evolutions:
        raise BadInput(f"needs: accuracies without the final MLP after every epoch, which {MAIN}'s history has not.")
    lag, shows, notes = {}, {}, []
    for i, run in enumerate(curves["runs"].tolist()):
        found = dynamics.carrying(dynamics.finished(curves["test_loss"][i]), evolutions[run], evidence.whole(MAIN))
        lag[run], shows[run] = found.lag, found.coincides and found.exponential
        low, high = found.kink.interval
        notes.append(
            f"run {run}: kink at epoch {found.kink.epoch}, rise from {found.rise:.0f} ({found.depth:.3f} below an"
            f" earlier high), decay {found.kink.rate:.3g} ({low:.3g} to {high:.3g}) an epoch explains"
            f" {found.kink.explained:.3f}"
        )
    return result(lag, shows, f"Epochs from the kink to the start of the rise. {'; '.join(notes)}.")


def order(run: int, model: Transformer) -> float:
    """`geometry.mean_order` of a run on the same random sums every time, those of Fig. 9's page."""
    a, b = sums.long_sums(ORDERED, 3, torch.Generator().manual_seed(0))
    return geometry.mean_order(geometry.orders_of_runs([(run, model)], a, b, 3)[run])


@finding("decay_matters_one_layer")
def decay_matters_one_layer(evidence: Evidence) -> Found:
    """App. B, C.1: whether the answer's digits stand in order along the leading axes, without decay and with it."""
    without, decayed = per_model(evidence, N1_W0, order), per_model(evidence, N1, order)
    shows = {run: criteria.loses_order(value, decayed.values()) for run, value in without.items()}
    detail = (
        f"Mean size of Spearman's correlation of the better leading axis, over positions 7, 8, 9, after attention and"
        f" MLP: without decay {listed(without.values())}; with decay {listed(decayed.values())}."
    )
    return result(without, shows, detail)
