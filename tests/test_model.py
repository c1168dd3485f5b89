import math

import pytest
import torch

from carry_core import sums
from carry_core.edits import recorder
from carry_core.model import ModelConfig, Transformer, rotary, rotate


def tokens_of(config: ModelConfig, count: int = 7) -> torch.Tensor:
    a, b = sums.long_sums(count, config.width, torch.Generator().manual_seed(3))
    return sums.encode(a, b, config.layout)


def sites(config: ModelConfig) -> list[str]:
    per_block = ["attn.pattern", "attn.z", "attn_out", "attn.skip", "resid_mid", "mlp.post", "mlp_out", "resid_post"]
    return ["embed", *(f"blocks.{l}.{name}" for l in range(config.layers) for name in per_block), "logits"]


def test_recording_changes_nothing(config, model):
    kept: dict[str, torch.Tensor] = {}
    tokens = tokens_of(config)
    assert torch.equal(model(tokens), model(tokens, recorder(kept)))
    assert sorted(kept) == sorted(sites(config))
    shape = (len(tokens), config.layout.length)
    assert kept["blocks.0.attn.pattern"].shape == (len(tokens), config.heads, shape[1], shape[1])
    assert kept["blocks.0.attn.z"].shape == (*shape, config.heads, config.d_head)
    assert kept["blocks.0.mlp.post"].shape == (*shape, config.d_ff)
    total = kept["blocks.0.attn.pattern"].sum(-1)
    torch.testing.assert_close(total, torch.ones_like(total))


def test_every_site_matters_and_only_from_its_position_on(config, model):
    """Adding to one position of a site moves the logits there; in the decoder never at an earlier position."""
    tokens = tokens_of(config)
    plain, at = model(tokens), 4
    for name in sites(config):
        where = (..., at, slice(None)) if name.endswith("pattern") else (slice(None), at)

        def change(site, x, name=name, where=where):
            if site != name:
                return x
            x = x.clone()
            x[where] += 0.5 * torch.rand(x[where].shape, generator=torch.Generator().manual_seed(0)).double()
            return x

        moved = (model(tokens, change) - plain).abs().amax((0, 2))
        assert moved[at] > 1e-9, name
        if config.causal:
            assert (moved[:at] == 0).all(), name


def test_reading_fewer_positions_gives_the_same_logits(config, model):
    tokens, read = tokens_of(config), list(config.layout.read)
    torch.testing.assert_close(model(tokens, read=read), model(tokens)[:, read], rtol=0, atol=1e-12)


def test_decoder_does_not_look_ahead():
    config = ModelConfig(causal=True, d_model=16)
    model = Transformer(config).double()
    embedded = torch.zeros(1, config.layout.length, 16, dtype=torch.float64, requires_grad=True)
    logits = model(tokens_of(config, 1), lambda name, x: x + embedded if name == "embed" else x)
    for position in range(config.layout.length):
        (gradient,) = torch.autograd.grad(logits[0, position].sum(), embedded, retain_graph=True)
        assert (gradient[0, position + 1 :] == 0).all()
        assert (gradient[0, : position + 1] != 0).any(-1).all()


def test_rotation_turns_pairs_and_depends_on_distance_only():
    turn = rotary(12, 8)
    x, y = torch.randn(2, 12, 1, 8, dtype=torch.float64)
    same = x[:1].expand(12, 1, 8), y[:1].expand(12, 1, 8)
    scores = rotate(same[0], turn)[:, 0] @ rotate(same[1], turn)[:, 0].T
    for shift in range(-11, 12):
        diagonal = scores.diagonal(shift)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))
    angle = 5 * 10_000.0 ** (-2 / 8)
    cos, sin = math.cos(angle), math.sin(angle)
    (u, v), found = x[5, 0, 2:4].tolist(), rotate(x, turn)[5, 0, 2:4].tolist()
    assert found == pytest.approx([u * cos - v * sin, u * sin + v * cos])


@pytest.mark.parametrize(("config", "count"), [(ModelConfig(), 201_996), (ModelConfig(layers=1), 102_668)])
def test_parameter_count(config, count):
    assert sum(p.numel() for p in Transformer(config).parameters()) == count
