"""Language models in GGUF files, and a network whose weights are random instead."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from carry_paper.llm import head_survey, prompts
from carry_paper.llm.model import inspect_model
from tests.helpers.llm_models import build, folder
from tests.helpers.tolerances import assert_close

pytestmark = pytest.mark.slow

BARE = prompts.TEMPLATES["bare"]
# In byte-pair encoding a space is Ġ.
TOKENS = ("<unk>", "<s>", "</s>", "Ġ", "+", "=", "Ġ+", "Ġ=", *"0123456789")
MERGES = ("Ġ +", "Ġ =")
NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def interleaved(weight: np.ndarray, n_heads: int) -> np.ndarray:
    """Rows of queries and keys as llama.cpp has them: of each head, both halves in turn."""
    return weight.reshape(n_heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def write(path: Path, model) -> Path:
    """Write a Llama as a GGUF file, with a tokenizer that has a token for each digit."""
    import gguf

    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 3, 3, *[1] * (len(TOKENS) - 3)])
    writer.add_token_merges(MERGES)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    writer.add_tensor("token_embd.weight", weights["model.embed_tokens.weight"])
    writer.add_tensor("output_norm.weight", weights["model.norm.weight"])
    writer.add_tensor("output.weight", weights["lm_head.weight"])
    for layer in range(config.num_hidden_layers):
        for name, in_file in NAMES.items():
            weight = weights[f"model.layers.{layer}.{name}.weight"]
            if in_file in ("attn_q", "attn_k"):
                weight = interleaved(weight, config.num_attention_heads)
            writer.add_tensor(f"blk.{layer}.{in_file}.weight", weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def llama():
    return build("llama", len(TOKENS))


@pytest.fixture(scope="module")
def file(llama, tmp_path_factory):
    return write(tmp_path_factory.mktemp("model") / "tiny.Q8.gguf", llama)


@pytest.mark.needs("gguf")
def test_a_gguf_file_gives_the_weights_that_were_written(file, llama):
    source = inspect_model(str(file), BARE)
    assert (source.title, source.size) == ("tiny.Q8", (3, 4))
    weights = source.load().state_dict()
    assert weights.keys() == llama.state_dict().keys()
    for name, weight in llama.state_dict().items():
        assert_close(weights[name], weight, msg=name)


@pytest.mark.needs("gguf")
def test_another_file_of_the_same_folder_is_another_survey(file, llama, tmp_path):
    copy = write(tmp_path / "other.gguf", llama)
    surveyors = [
        head_survey.Surveyor(inspect_model(str(path), BARE), tmp_path, count=10)
        for path in (file, copy)
    ]
    before = surveyors[1].folder
    copy.touch()
    after = head_survey.Surveyor(inspect_model(str(copy), BARE), tmp_path, count=10).folder
    assert len({surveyors[0].folder, before, after}) == 3


@pytest.mark.needs("gguf")
def test_a_damaged_gguf_file_is_one_line(refused, data, file, tmp_path):
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(file.read_bytes()[:200])
    assert f"{damaged} holds no language model that can be read" in refused("llm", str(damaged))
    assert list(data.iterdir()) == []


def test_random_weights_are_those_of_their_seed(tmp_path):
    source = inspect_model(str(folder(tmp_path / "tiny")), BARE)
    sources = [source, *(replace(source, init_seed=seed) for seed in (3, 3, 4))]
    state = torch.random.get_rng_state()
    models = [source.load() for source in sources]
    weights = [model.get_input_embeddings().weight for model in models]
    assert torch.equal(weights[1], weights[2])
    assert not torch.equal(weights[1], weights[0])
    assert not torch.equal(weights[1], weights[3])
    assert torch.equal(torch.random.get_rng_state(), state)
    assert [source.title for source in sources[1:]] == [f"tiny-random{seed}" for seed in (3, 3, 4)]
    assert models[1].config.num_hidden_layers == models[0].config.num_hidden_layers


def test_a_survey_without_streams_is_the_same_but_for_these(tmp_path):
    source = inspect_model(str(folder(tmp_path / "tiny")), BARE)
    surveys = []
    for keeps_streams in (True, False):
        surveyor = head_survey.Surveyor(
            source, tmp_path / "parts", count=20, keeps_streams=keeps_streams
        )
        surveyor.run().save(tmp_path / head_survey.FILE)
        surveys.append(head_survey.read(tmp_path / head_survey.FILE))
    assert torch.equal(surveys[0].wins, surveys[1].wins)
    assert torch.equal(surveys[0].mean, surveys[1].mean)
    assert surveys[0].lines() == surveys[1].lines()
    assert (surveys[0].points.shape[-1], surveys[1].points.shape[-1]) == (6, 0)
