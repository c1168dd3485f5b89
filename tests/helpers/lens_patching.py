"""TransformerLens's helpers for activation patching against `activation_patch`."""

import warnings
from importlib import import_module
from typing import Any

import pandas as pd
import torch

from carry_core.measure import activation_patch
from carry_core.model import Transformer
from carry_core.pairs import Contrast, sample_pairs
from carry_core.sums import encode, targets

COLUMN = 1  # the tens
# TransformerLens's helpers, without `get_act_patch_`, and the parts that they patch.
BY_POSITION = {
    "resid_pre": "resid",
    "resid_mid": "resid_mid",
    "attn_out": "attn_out",
    "mlp_out": "mlps",
    "attn_head_out_by_pos": "heads",
    "attn_head_q_by_pos": "q",
    "attn_head_k_by_pos": "k",
    "attn_head_v_by_pos": "v",
    "attn_head_pattern_by_pos": "patterns",
}
AT_ALL_POSITIONS = {
    "attn_head_out_all_pos": "heads",
    "attn_head_q_all_pos": "q",
    "attn_head_k_all_pos": "k",
    "attn_head_v_all_pos": "v",
    "attn_head_pattern_all_pos": "patterns",
}


def assert_helpers_agree(model: Transformer, lens_model: Any, count: int, atol: float) -> None:
    """Assert that their helpers on their model give ours: the mean probability of a digit."""
    patching = import_module("transformer_lens.patching")
    layout = model.config.layout
    generator = torch.Generator().manual_seed(0)
    clean, corrupted = sample_pairs(Contrast("carry_in", COLUMN), count, generator, layout)
    digit = targets(*clean, layout)[:, COLUMN]

    def metric(logits):
        probabilities = logits[:, layout.answer[COLUMN]].softmax(-1)
        return probabilities.gather(1, digit[:, None]).mean()

    _, cache = lens_model.run_with_cache(encode(*clean, layout))
    tokens = encode(*corrupted, layout)
    for helpers, positions in ((BY_POSITION, range(layout.length)), (AT_ALL_POSITIONS, None)):
        parts = list(helpers.values())
        frame = activation_patch(model, tuple(clean), tuple(corrupted), parts, metric, positions)
        values_by_place = by_place(frame)
        for helper, part in helpers.items():
            patch = getattr(patching, f"get_act_patch_{helper}")
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")
                values, index = patch(lens_model, tokens, cache, metric, return_index_df=True)
            ours = [values_by_place[place(part, row)] for row in index.to_dict("records")]
            expected = values.flatten().double()
            torch.testing.assert_close(torch.tensor(ours).double(), expected, rtol=0, atol=atol)
            assert len({*ours}) > 1, f"{helper} has no effect"


def by_place(frame: pd.DataFrame) -> dict[tuple[object, ...], float]:
    """The values by part, layer, number and position, which are None where they are missing."""
    values = {}
    for row in frame.astype(object).itertuples():
        number, position = (None if x is pd.NA else x for x in (row.number, row.position))
        values[row.part, row.layer, number, position] = row.value
    return values


def place(part: str, row: dict[str, int]) -> tuple[object, ...]:
    """The same of a row of their index."""
    head = row.get("head_index", row.get("head"))
    return part, row["layer"], head, row.get("pos", row.get("dest_pos"))
