"""Mean ablation against brute force: one pass for the average, one that puts it in place, sum by sum."""

import pytest
import torch

from carry_core import means, measure, sums, tasks
from carry_core.edits import Ablation
from carry_core.errors import BadInput
from carry_core.means import Held
from carry_core.measure import Cells
from carry_core.model import ModelConfig, Transformer


@pytest.fixture(params=["encoder", "decoder", "padded", "three layers"])
def noisy(request, monkeypatch) -> Transformer:
    shapes = {
        "encoder": ModelConfig(width=2, d_model=16, d_ff=12),
        "decoder": ModelConfig(width=2, causal=True, d_model=16, d_ff=12),
        "padded": ModelConfig(width=3, d_model=16, d_ff=12),
        "three layers": ModelConfig(layers=3, width=2, d_model=24, heads=3, d_ff=12),
    }
    torch.manual_seed(1)
    model = Transformer(shapes[request.param]).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    monkeypatch.setattr(measure, "BATCH", 700)  # several batches, the last one short
    return model


def kinds(model: Transformer) -> list[Held]:
    last, head = model.config.layers - 1, model.config.heads - 1
    return [
        Held(heads={(last, head)}),
        Held(heads={(0, 0)}),
        Held(patterns={(last, head)}),
        Held(mlps={last}),
        Held(mlps={0}),
        Held(heads={(last, 0)}, patterns={(last, head)}, mlps={0}),
        Held(),
    ]


def by_hand(model: Transformer, tokens: torch.Tensor, held: Held) -> torch.Tensor:
    """Logits when every named part of a full pass is overwritten with its mean over the sums."""
    kept: dict[str, torch.Tensor] = {}
    model(tokens, lambda name, x: kept.setdefault(name, x))

    def site(name: str, x: torch.Tensor) -> torch.Tensor:
        layer, x = name.split(".")[1] if "." in name else "", x.clone()
        for l, head in held.heads:
            if name == f"blocks.{l}.attn.z":
                x[:, :, head] = kept[name][:, :, head].mean(0)
        for l, head in held.patterns:
            if name == f"blocks.{l}.attn.pattern":
                x[:, head] = kept[name][:, head].mean(0)
        if name == f"blocks.{layer}.mlp_out" and int(layer) in held.mlps:
            x[:] = kept[name].mean(0)
        return x

    return model(tokens, site)


def test_cells_are_those_of_a_pass_overwritten_by_hand(noisy):
    n_digits = 2
    a, b = sums.all_sums(n_digits)
    layout = noisy.config.layout
    tokens, found = sums.encode(a, b, layout), means.cells(noisy, a, b, kinds(noisy), n_digits)
    intact = measure.cells(noisy, a, b, n_digits=n_digits)[0]
    for held, cells in zip(kinds(noisy), found, strict=True):
        guess = by_hand(noisy, tokens, held)[:, list(layout.answer[-n_digits:])].argmax(-1)
        expected = measure.score(guess.to(torch.int8), a, b)
        torch.testing.assert_close(cells.accuracy, expected.accuracy, msg=str(held))
        torch.testing.assert_close(cells.corrected, expected.corrected, msg=str(held))
        assert torch.equal(cells.accuracy, intact.accuracy) == (held == Held())


def test_averages_are_means_over_the_sums(noisy):
    a, b = sums.all_sums(2)
    layout, last = noisy.config.layout, noisy.config.layers - 1
    kept: dict[str, torch.Tensor] = {}
    noisy(sums.encode(a, b, layout), lambda name, x: kept.setdefault(name, x))
    names = ["blocks.0.mlp_out", f"blocks.{last}.attn.z", f"blocks.{last}.attn.pattern"]
    first, z, pattern = (means.averages(noisy, a, b, names, 2)[name] for name in names)
    answer = list(layout.answer[-2:])
    torch.testing.assert_close(first, kept[names[0]].mean(0))
    torch.testing.assert_close(z, kept[names[1]].mean(0)[answer])
    torch.testing.assert_close(pattern, kept[names[2]].mean(0)[:, answer])


def test_what_is_the_same_for_all_sums_can_be_held_without_loss():
    """An MLP that adds a constant is missed when it is set to zero, and not when it is held."""
    torch.manual_seed(0)
    model = Transformer(ModelConfig(width=2, d_model=16, d_ff=8)).eval()
    with torch.no_grad():
        model.blocks[1].down.weight.zero_()
        model.blocks[1].down.bias.copy_(5 * torch.randn(16))
    a, b = measure.sample(200, 2, seed=0)
    intact, zero = measure.cells(model, a, b, [Ablation(), Ablation(mlps={1})])
    (held,) = means.cells(model, a, b, [Held(mlps={1})])
    assert torch.equal(held.accuracy, intact.accuracy)
    assert not torch.equal(zero.accuracy, intact.accuracy)
    assert held.accuracy.shape == (len(tasks.patterns(2)), 2)


def test_which_way_a_model_errs():
    assert means.forgets(measure.cannot_carry())
    always = measure.cannot_carry()
    assert not means.forgets(Cells(always.corrected, always.accuracy, 0.0))
    units = torch.ones(5, 3)
    units[:, 2] = 0  # where no one can arrive: says nothing
    units[1, 0] = 0.9
    assert means.forgets(Cells(units, 1 - units, 0.0))


def test_as_data():
    held = Held(heads={(1, 0)}, mlps={1})
    assert len({held, Held(heads={(1, 0)}, mlps={1})}) == 1
    assert held.names() == ["blocks.1.attn.z", "blocks.1.mlp_out"]
    assert Held({(1, 0)}, {(2, 0)}, {0}).at(1) == Held({(1, 0)}, {(2, 0)})
    assert Held({(1, 0)}, {(2, 0)}, {0}).at(0) == Held(mlps={0})


def test_parts_that_cannot_be_held_are_named():
    a, b = measure.sample(5, 3, seed=0)
    model = Transformer(ModelConfig(d_model=16, d_ff=8)).eval()
    for held in (Held(heads={(2, 0)}), Held(patterns={(1, 2)}), Held(mlps={2})):
        with pytest.raises(BadInput, match="layers 0-1"):
            means.cells(model, a, b, [held])
        with pytest.raises(BadInput, match="layers 0-1"):
            held.steps(model.config, {})
    with pytest.raises(BadInput, match=r"patterns=\[\(0, 1\)\]: expected heads of later layers"):
        Held(patterns={(0, 1)})
