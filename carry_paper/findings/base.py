"""Types of findings and rules, and the groups of runs that the paper is about.

A finding is a plain function of a run's model, of a survey of the run (`survey.Survey`), of
learning curves, or of all that a source has (`evidence.Evidence`). For one run it returns `Fields`.
For several it returns a data frame with a row for each run, by its number, or by group and number.
`value` is the measured number, which the first line of the docstring names; the other fields are
whatever else was measured.

A rule decides from these fields whether a run shows what the paper claims; the claim's `reason` in
`data/claims.yml` says why the rule is as it is. So tables store what was measured, and the current
rule judges it whenever they are read. Its thresholds are `bars.Bar`, the defaults of its keyword
arguments, so that `bars.variants` can judge the same fields at other ones. A rule returns None for
a run that can't say whether it shows the claim: it counts neither for the claim nor against it.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from carry_train.groups import MAIN as MAIN

N1 = "n1_s0.3_w0.2"
N1_W0 = "n1_s0.3_w0.0"
N1_W1 = "n1_s0.2_w1.0"
W0 = "n2_s0.3_w0.0"
S01 = "n2_s0.1_w0.2"
DFF512 = "n2_s0.2_w1.0_dff512"
DFF1024 = "n2_s0.3_w0.2_dff1024"
N3 = "n3_s0.3_w0.2"
DECODER = "decoder_n2_s0.3_w0.2"
DIGITS4 = "digits4_n2_s0.3_w0.2"
PAD6 = "pad6_n2_s0.3_w0.2"
PRIMED = "pad6_primed100_n2_s0.3_w0.2"
FINETUNED = "pad6_finetuned500_n2_s0.3_w0.2"
DECODER_PAD6 = "decoder_pad6_primed500_n2_s0.3_w0.2"

Fields = Mapping[str, Any]  # numbers, texts or lists of these, by name
Rule = Callable[[Fields], bool | None]

# A rule also reads these fields, which no table stores: the number of the run's layers, the epochs
# of its whole training, and the number of its priming sums.
CONTEXT = ("layers", "planned", "primed")


def per_run(fields_by_run: Mapping[Any, Fields]) -> pd.DataFrame:
    """Return a data frame with a row for each run."""
    rows = [dict(fields) for fields in fields_by_run.values()]
    return pd.DataFrame(rows, index=list(fields_by_run))
