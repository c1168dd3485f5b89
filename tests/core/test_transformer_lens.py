"""TransformerLens's own model shares no code with ours, and gives the same numbers."""

import pytest
import torch

from carry_core.bridges import lens_name
from carry_core.sums import encode, long_sums
from carry_paper.catalogue import load
from carry_train.groups import MAIN
from tests.helpers.hooked_transformer import hooked_transformer
from tests.helpers.lens_patching import assert_helpers_agree

DEPRECATED = "ignore:HookedTransformer is deprecated:DeprecationWarning"
pytestmark = [pytest.mark.lens, pytest.mark.filterwarnings(DEPRECATED)]

RUNS = [
    *((MAIN, run) for run in (0, 1, 2)),
    ("n1_s0.3_w0.2", 0),
    ("n3_s0.3_w0.2", 0),
    ("decoder_n2_s0.3_w0.2", 0),
    ("n2_s0.2_w1.0_dff512", 0),
    ("digits4_n2_s0.3_w0.2", 0),
    ("pad6_n2_s0.3_w0.2", 0),
]
NOT_IN_TRANSFORMER_LENS = ("attn.skip", "mlp.skip", "logits")


@pytest.fixture
def model_and_theirs(lens, request):
    group, run = request.param
    model = load(group, runs=[run]).model(run)
    return model, hooked_transformer(model)


@pytest.mark.lens3
@pytest.mark.parametrize("model_and_theirs", RUNS, indirect=True, ids=str)
def test_their_forward_pass_gives_the_same_answers_and_activations(model_and_theirs):
    model, lens_model = model_and_theirs
    layout = model.config.layout
    a, b = long_sums(1000, model.config.width, torch.Generator().manual_seed(0))
    tokens = encode(a, b, layout)
    logits, cache = model.run_with_cache(tokens)
    with torch.no_grad():
        their_logits, their_cache = lens_model.run_with_cache(tokens)
    answers = logits[:, layout.answer].argmax(-1)
    assert torch.equal(their_logits[:, layout.answer].argmax(-1), answers)
    assert answers.unique().numel() >= 10
    close = {"rtol": 0, "atol": 1e-5}
    torch.testing.assert_close(
        logits / logits.abs().max(), their_logits / logits.abs().max(), **close
    )
    for name, activation in cache.items():
        if not name.endswith(NOT_IN_TRANSFORMER_LENS):
            unmasked = activation > -torch.inf  # TransformerLens masks scores by this, too
            scale = activation[unmasked].abs().max()
            their_activation = their_cache[lens_name(name)]
            assert torch.equal(their_activation > -torch.inf, unmasked), name
            torch.testing.assert_close(
                activation[unmasked] / scale, their_activation[unmasked] / scale, **close, msg=name
            )


@pytest.mark.lens3
@pytest.mark.parametrize("model_and_theirs", [RUNS[0], RUNS[5]], indirect=True, ids=str)
def test_their_helpers_on_their_model_give_what_activation_patch_gives(model_and_theirs):
    model, lens_model = model_and_theirs
    assert_helpers_agree(model, lens_model, count=100, atol=1e-5)
