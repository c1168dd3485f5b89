"""A transformer that adds, in plain PyTorch: `python modeling_carry.py run0 158+265`."""

import json
import re
import sys
from math import sqrt
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

SYMBOLS = "0123456789+="
Weights = dict[str, torch.Tensor]
Config = dict[str, int]


def load(folder: str) -> tuple[Weights, Config]:
    """Return a run's weights by name, and the shape of the model; ValueError if a file is bad."""
    try:
        config = json.loads((Path(folder) / "config.json").read_text())
        weights = load_file(Path(folder) / "model.safetensors")
    except Exception as error:
        reason = f"{folder} is incomplete ({error}): get it again; `sha256sum -c` checks it."
        raise ValueError(reason) from error
    return {name: weight.float() for name, weight in weights.items()}, config


def logits(w: Weights, config: Config, tokens: torch.Tensor) -> torch.Tensor:
    """Return the logits [batch, pos, 12] for tokens [batch, pos]: digits, 10 for +, 11 for =."""
    heads, d_head = config["heads"], config["d_model"] // config["heads"]
    rate = 10_000.0 ** (-torch.arange(0, d_head, 2) / d_head)
    angle = torch.arange(tokens.shape[1])[:, None, None] * rate  # (pos, 1, half)
    turn = torch.polar(torch.ones_like(angle), angle)

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"])

    def rotated(x: torch.Tensor) -> torch.Tensor:  # adjacent coordinates, by position (RoFormer)
        pairs = torch.view_as_complex(x.unflatten(-1, (heads, -1, 2)).contiguous())
        return torch.view_as_real(pairs * turn).flatten(-2).transpose(1, 2)  # to (batch, head, pos)

    x = F.embedding(tokens, w["embed.weight"]) * sqrt(config["d_model"])
    for layer in range(config["layers"]):
        block = f"blocks.{layer}"  # one LayerNorm serves attention and MLP; values are rotated too
        q, k, v = (rotated(linear(norm(x, f"{block}.norm"), f"{block}.{part}")) for part in "qkv")
        z = F.scaled_dot_product_attention(q, k, v, is_causal=bool(config["causal"]))
        x = x + linear(z.transpose(1, 2).flatten(-2), f"{block}.o")
        x = x + linear(F.relu(linear(norm(x, f"{block}.norm"), f"{block}.up")), f"{block}.down")
    return linear(norm(x, "norm"), "unembed")


def answer(w: Weights, config: Config, text: str) -> str:
    """Return the model's answer to a sum such as 158+265; ValueError if that does not fit it."""
    width = config["width"]
    numbers = re.fullmatch(rf"([0-9]{{{width}}})\+([0-9]{{{width}}})", text)
    if not numbers or int(numbers[1]) + int(numbers[2]) >= 10**width:
        raise ValueError(
            f"{text!r} does not fit the model: expected two numbers of {width} digits whose sum "
            f"has {width} digits too, such as {'1' * width}+{'2' * width}."
        )
    tokens = [SYMBOLS.index(symbol) for symbol in text]
    if not config["causal"]:
        read_out = tokens + [SYMBOLS.index("=")] * width
        digits = logits(w, config, torch.tensor([read_out]))[0, -width:].argmax(-1)
        return "".join(map(str, digits.tolist()))
    for _ in range(width):
        tokens.append(int(logits(w, config, torch.tensor([tokens]))[0, -1].argmax()))
    return "".join(map(str, tokens[-width:]))


if __name__ == "__main__":
    try:
        if len(sys.argv) != 3:
            raise ValueError("Expected a run's folder and a sum, such as `run0 158+265`.")
        print(answer(*load(sys.argv[1]), sys.argv[2]))
    except ValueError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
