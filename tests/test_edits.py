import copy

import pytest
import torch

from carry_core import measure, sums
from carry_core.edits import INTACT, Ablation, recorder
from carry_core.errors import BadInput
from carry_core.forks import FirstLayer, Forks
from carry_core.model import Block, ModelConfig, Transformer


def tokens_of(config: ModelConfig) -> torch.Tensor:
    a, b = sums.long_sums(9, config.width, torch.Generator().manual_seed(4))
    return sums.encode(a, b, config.layout)


def by_weights(model, ablation):
    """The same ablation made by hand in the weights. Skips have no weights to edit."""
    model = copy.deepcopy(model)
    d_head = model.config.d_head
    with torch.no_grad():
        for layer, head in ablation.heads:
            model.blocks[layer].o.weight[:, head * d_head : (head + 1) * d_head] = 0
        for layer in ablation.mlps:
            model.blocks[layer].down.weight.zero_()
            model.blocks[layer].down.bias.zero_()
        for layer, neuron in ablation.neurons:
            model.blocks[layer].up.weight[neuron] = 0
            model.blocks[layer].up.bias[neuron] = 0
    return model


def ablations(config: ModelConfig) -> list[Ablation]:
    last = config.layers - 1
    return [
        INTACT,
        Ablation(heads={(0, 0)}),
        Ablation(heads={(last, config.heads - 1)}),
        Ablation(heads={(last, head) for head in range(config.heads)}),
        Ablation(mlps={0}),
        Ablation(mlps={last}),
        Ablation(neurons={(last, 1), (last, 5), (0, 0)}),
        Ablation(heads={(last, 0)}, mlps={last}, neurons={(0, 2)}),
    ]


def test_ablations_equal_edited_weights(config, model):
    tokens = tokens_of(config)
    for ablation in ablations(config):
        found = model(tokens, ablation.site(config))
        torch.testing.assert_close(found, by_weights(model, ablation)(tokens), rtol=0, atol=1e-12, msg=str(ablation))
        assert torch.equal(found, model(tokens)) == (ablation == INTACT)


def test_zeroing_a_head_is_zeroing_its_probabilities(config, model):
    def no_pattern(name, x):
        return x.index_fill(1, torch.tensor([1]), 0) if name == "blocks.0.attn.pattern" else x

    tokens = tokens_of(config)
    torch.testing.assert_close(model(tokens, no_pattern), model(tokens, Ablation(heads={(0, 1)}).site(config)))


def test_skip_removal_leaves_the_attention_output_alone(config, model):
    kept = {}

    def keep(name, x):
        kept[name] = x
        return x

    site = Ablation(skips={0}).site(config)
    model(tokens_of(config), lambda name, x: keep(name, site(name, x)))
    assert torch.equal(kept["blocks.0.resid_mid"], kept["blocks.0.attn_out"])


@pytest.mark.parametrize("everywhere", [False, True])
def test_forks_equal_separate_passes(config, model, everywhere):
    tokens, read = tokens_of(config), None if everywhere else list(config.layout.read)
    edits, mids, kept = [*ablations(config), Ablation(skips={0})], [], {}
    forks = Forks(model, [e.steps(config) for e in edits], read, mids.append)
    for ablation, logits in zip(edits, forks(tokens), strict=True):
        alone = model(tokens, ablation.site(config), read)
        torch.testing.assert_close(logits, alone, rtol=0, atol=1e-12, msg=str(ablation))
    name = f"blocks.{config.layers - 1}.resid_mid"
    model(tokens, recorder(kept, name), read)
    torch.testing.assert_close(mids, [kept[name]], rtol=0, atol=1e-12)


@pytest.fixture
def fed(monkeypatch) -> list[int]:
    """The layers whose MLPs are computed, one entry each time."""
    layers, feed = [], Block.feed
    monkeypatch.setattr(
        Block, "feed", lambda self, mid, site: layers.append(int(self.name[-1])) or feed(self, mid, site)
    )
    return layers


def test_edits_that_begin_alike_are_computed_together(fed):
    """The pairs of parts of App. C.3 have the whole attention of layer 1 in common."""
    model = Transformer(ModelConfig(layers=3))
    pairs = [pair.steps(model.config) for pair in measure.head_pairs(model.config)]
    assert [pair.keys() for pair in pairs] == [{1, 2}, {1, 2}]
    Forks(model, [{}, *pairs])(tokens_of(model.config))
    assert sorted(fed) == [0, 1, 1, 2, 2, 2]


@pytest.mark.parametrize(
    ("ablations", "watched", "expected"),
    [
        ([], False, []),
        ([], True, [0, 1]),
        ([INTACT, INTACT], True, [0, 1, 2]),
        ([Ablation(heads={(0, 0)})], False, [0, 1, 2]),
        ([Ablation(heads={(0, 0)})], True, [0, 0, 1, 1, 2]),
        ([Ablation(mlps={1}), Ablation(mlps={1}, skips={2})], False, [0, 1, 2, 2]),
        ([Ablation(neurons={(0, 0), (1, 0)}), Ablation(neurons={(0, 0), (2, 0)})], False, [0, 1, 1, 2, 2]),
    ],
)
def test_what_is_not_asked_for_is_not_computed(ablations, watched, expected, fed):
    model = Transformer(ModelConfig(layers=3, width=2, d_model=16, d_ff=8))
    edits = [ablation.steps(model.config) for ablation in ablations]
    Forks(model, edits, last_mid=(lambda mid: None) if watched else None)(tokens_of(model.config))
    assert sorted(fed) == expected


def test_a_first_layer_that_is_intact_comes_from_tables(config, model, monkeypatch):
    monkeypatch.delattr(FirstLayer, "gathered")
    Forks(model, [{}, Ablation(mlps={1}).steps(config)] if config.layers > 1 else [{}])(tokens_of(config))


def test_a_step_of_the_last_layer_sees_the_logits(config, model):
    (found,) = Forks(model, [{config.layers - 1: ("half", lambda name, x: x / 2 if name == "logits" else x)}])(
        tokens_of(config)
    )
    torch.testing.assert_close(found, model(tokens_of(config)) / 2, rtol=0, atol=1e-12)


def test_forks_where_a_digit_that_a_sum_has_not_would_score_far_above_all_others():
    model = Transformer(ModelConfig(heads=1)).requires_grad_(False)
    block, slow = model.blocks[0], 126  # the pair of coordinates that the rotary embedding hardly turns
    block.q.weight[slow], block.q.bias[slow] = 0, 40
    block.k.weight[slow] = 0.3 * block.norm(model.embed.weight[9])
    tokens = sums.encode(torch.tensor([123, 876]), torch.tensor([456, 12]), model.config.layout)
    (logits,) = Forks(model, [{}])(tokens)
    torch.testing.assert_close(logits, model(tokens), rtol=0, atol=1e-4)


def test_as_data():
    ablation = Ablation(heads={(1, 0)}, mlps={1}, neurons={(1, 17)})
    assert Ablation.from_json(ablation.to_json()) == ablation
    assert len({ablation, Ablation(heads={(1, 0)}, mlps={1}, neurons={(1, 17)})}) == 1
    assert ablation.to_json() == '{"heads": [[1, 0]], "mlps": [1], "neurons": [[1, 17]]}'
    assert str(ablation) == "without head 1:0, MLP 1, neuron 1:17"
    assert str(INTACT) == "intact"
    assert ablation | Ablation(skips={0}) == Ablation(heads={(1, 0)}, mlps={1}, neurons={(1, 17)}, skips={0})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("heads", "is not an ablation: expected JSON"),
        ('{"head": [[1, 0]]}', "expected a JSON object with keys among heads"),
        ('{"heads": [1]}', "expected pairs of a layer and a number"),
        ('{"heads": [[1, "0"]]}', "expected whole numbers"),
        ('{"mlps": 1}', "expected layers, such as"),
        ('{"mlps": [true]}', "expected whole numbers"),
    ],
)
def test_bad_json_is_named(text, complaint):
    with pytest.raises(BadInput, match=complaint):
        Ablation.from_json(text)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("given", [{"heads": [[1, 0]]}, None, 3, b"\xff"])
def test_what_is_no_text_is_no_json(given):
    with pytest.raises(BadInput, match="is not an ablation: expected JSON such as") as error:
        Ablation.from_json(given)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "ablation", [Ablation(heads={(1, 2)}), Ablation(heads={(2, 0)}), Ablation(mlps={2}), Ablation(neurons={(0, 128)})]
)
def test_parts_that_do_not_exist_are_named(ablation):
    for made in (ablation.site, ablation.steps):
        with pytest.raises(BadInput, match="layers 0-1"):
            made(ModelConfig())


@pytest.mark.parametrize("ablation", [Ablation(heads={(1, 2)}), Ablation(mlps={1})])
def test_one_layer_is_no_range_of_layers(ablation):
    with pytest.raises(BadInput, match="but this model has layer 0 only"):
        ablation.check(ModelConfig(layers=1))
