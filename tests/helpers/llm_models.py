"""Tiny random language models and tokenizers that write numbers in several ways."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedTokenizerFast,
)

from carry_paper.llm import prompts, small
from carry_paper.llm.model import library

SPECIAL = ["<pad>", "<s>", "</s>"]


def _trained(core: Tokenizer, alphabet: list[str], size: int) -> PreTrainedTokenizerFast:
    texts = [prompts.TEMPLATES["bare"].prompt(a, b) for a, b in prompts.draw(1000, seed=3).tolist()]
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    core.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )


def split_digits() -> PreTrainedTokenizerFast:
    return small.tokenizer()


def with_spaces(size: int, *digits: pre_tokenizers.PreTokenizer) -> PreTrainedTokenizerFast:
    """As Llama: a space goes with what follows it, and a prompt ends in a lone space."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), *digits])
    core.decoder = decoders.Metaspace()
    return _trained(core, list("0123456789+=▁"), size)


def prefixed_spaces() -> PreTrainedTokenizerFast:
    return with_spaces(40, pre_tokenizers.Digits(True))


def grouped_digits() -> PreTrainedTokenizerFast:
    """Tokens of several digits, as many as byte-pair encoding happens to put together."""
    return with_spaces(220)


def bytes_and_threes() -> PreTrainedTokenizerFast:
    """As Llama 3: bytes, and numbers in groups of up to three digits."""
    core = Tokenizer(models.BPE())
    groups = pre_tokenizers.Split(Regex(r"\d{1,3}|\s?[^\s\d]+|\s+"), "isolated")
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [groups, pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    core.decoder = decoders.ByteLevel()
    return _trained(core, pre_tokenizers.ByteLevel.alphabet(), 700)


TOKENIZERS = {
    f.__name__: f for f in (split_digits, prefixed_spaces, grouped_digits, bytes_and_threes)
}


def build(kind: str, vocabulary: int) -> Any:
    """A random model of three layers of four heads; Mistral's share keys and values by twos."""
    shape = {"vocab_size": vocabulary, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    llama = shape | {
        "hidden_size": 24,
        "intermediate_size": 20,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "initializer_range": 0.3,
        "max_position_embeddings": 128,
    }
    torch.manual_seed(0)
    if kind == "llama":
        config: Any = LlamaConfig(**llama)
    elif kind == "llama wide heads":  # a head need not be as wide as its share of the stream
        config = LlamaConfig(**llama, head_dim=10, attention_bias=True)
    elif kind == "mistral":
        config = MistralConfig(**llama, num_key_value_heads=2, sliding_window=64)
    else:
        config = GPT2Config(
            **shape, n_embd=24, n_layer=3, n_head=4, n_positions=128, initializer_range=0.3
        )
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()


KINDS = ("llama", "llama wide heads", "mistral", "gpt2")


def folder(path: Path, kind: str = "mistral", tokenizer: str = "split_digits") -> Path:
    """A model and its tokenizer as a Hugging Face folder."""
    tokens = TOKENIZERS[tokenizer]()
    library()  # quiet from then on
    build(kind, len(tokens)).save_pretrained(path)
    tokens.save_pretrained(path)
    return path
