"""A small Llama, trained from scratch on four-digit sums as text, to run Sec. 6 without 7B weights.

It learns `1234 + 5678 = 6912` as the tokens `<s> 1 2 3 4 + 5 6 7 8 = 6 9 1 2 </s>`; only the answer
and its end enter the loss. Every batch is new; the prompts of the protocol are never among them.
Width 16 got 0.841 of other random sums right, width 32 gets 0.998. With four layers of eight heads,
there are 496 pairs of heads to choose from. Smaller shapes also learn to add, but they need nearly
every head, and where every pair is vital, ablating one says nothing.
"""

import math
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from jaxtyping import Float, Int
from numpy.random import SeedSequence
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from carry_core.sums import digits
from carry_paper.llm import prompts
from carry_train.files import replacing_all, write_json
from carry_train.trainer import commit

TOKENS = ("<pad>", "<s>", "</s>", "<unk>", "+", "=", *"0123456789")
PAD, BOS, EOS = range(3)
PROMPT_LENGTH = 2 * prompts.DIGITS + 3  # <s> a a a a + b b b b =
REPORT_EVERY = 100  # steps between validations


@dataclass(frozen=True)
class Recipe:
    """The shape of the model, and the hyperparameters of its training."""

    width: int = 32
    layers: int = 4
    heads: int = 8
    steps: int = 2000
    batch: int = 512
    rate: float = 2e-3
    warmup: int = 300
    decay: float = 0.1
    # In this share of sums, half of the columns add up to nine, so that carries propagate.
    carrying: float = 0.5
    seed: int = 0

    def learning_rate(self, step: int) -> float:
        """Return the learning rate of a step: linear warm-up, then a cosine down to zero."""
        if step < self.warmup:
            return self.rate * (step + 1) / self.warmup
        progress = (step - self.warmup) / (self.steps - self.warmup)
        return self.rate * (1 + math.cos(math.pi * progress)) / 2


RECIPE = Recipe()


def tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer with a token for each digit, `+` and `=`; spaces only separate."""
    core = Tokenizer(
        models.WordLevel({token: i for i, token in enumerate(TOKENS)}, unk_token="<unk>")
    )
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.Digits(True)]
    )
    core.decoder = decoders.Fuse()
    core.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", BOS)]
    )
    options: dict[str, Any] = {"padding_side": "left", "clean_up_tokenization_spaces": False}
    options |= {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=core, **options)


def build(recipe: Recipe) -> LlamaForCausalLM:
    """Return a Llama with initial weights."""
    shape: dict[str, Any] = {"hidden_size": recipe.width, "intermediate_size": 2 * recipe.width}
    shape |= {
        "num_hidden_layers": recipe.layers,
        "num_attention_heads": recipe.heads,
        "attn_implementation": "eager",
    }
    shape |= {
        "vocab_size": len(TOKENS),
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
    }
    config = LlamaConfig(
        **shape, max_position_embeddings=64, initializer_range=0.05, tie_word_embeddings=False
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        return LlamaForCausalLM(config)


def encode(pairs: Int[Tensor, "sum 2"]) -> Int[Tensor, "sum token"]:
    """Return the tokens of sums and their answers, ended by `</s>` and padded."""
    rows = [[BOS, *map(TOKENS.index, f"{a}+{b}={a + b}"), EOS] for a, b in pairs.tolist()]
    return torch.tensor(
        [row + [PAD] * (PROMPT_LENGTH + prompts.WIDTH + 1 - len(row)) for row in rows]
    )


def draw(recipe: Recipe, step: int) -> Int[Tensor, "sum 2"]:
    """Draw the sums of batch number `step`."""
    generator = torch.Generator().manual_seed(
        int(SeedSequence([recipe.seed, step]).generate_state(1)[0])
    )
    pairs = torch.randint(prompts.LOW, prompts.HIGH, (recipe.batch, 2), generator=generator)
    a, b = digits(pairs, prompts.DIGITS).unbind(1)
    nines = torch.rand(b.shape, generator=generator) < 0.5
    nines[:, 0] &= a[:, 0] < 9  # b has no leading zero
    nines &= torch.rand(len(b), 1, generator=generator) < recipe.carrying
    b = torch.where(nines, 9 - a, b)
    return torch.stack(
        [pairs[:, 0], (b * 10 ** torch.arange(prompts.DIGITS - 1, -1, -1)).sum(1)], 1
    )


def labels(
    pairs: Int[Tensor, "sum 2"], tokens: Int[Tensor, "sum token"]
) -> Int[Tensor, "sum read"]:
    """Return the next token at each position from `=` on.

    It is -100, which the loss ignores, after the end and for the prompts of the protocol.
    """
    targets = tokens[:, PROMPT_LENGTH:].clone()
    targets[targets == PAD] = -100
    codes, protocol_codes = (
        (x * torch.tensor([prompts.HIGH, 1])).sum(1) for x in (pairs, prompts.draw(1000))
    )
    targets[torch.isin(codes, protocol_codes)] = -100
    return targets


def train(
    recipe: Recipe,
    device: str = "cpu",
    report: Callable[[str, float], None] = lambda message, share: None,
) -> tuple[Any, dict[str, Any]]:
    """Train with AdamW, each batch on new sums; return the model and the record of its training.

    `report` takes each validation as text, and the share of steps that are done.
    """
    model: Any = build(recipe).train().to(device)
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=recipe.rate, betas=(0.9, 0.98), weight_decay=recipe.decay, fused=True
    )
    began, history, losses = time.monotonic(), [], []
    for step in range(recipe.steps):
        pairs = draw(recipe, step)
        tokens = encode(pairs)
        optimiser.param_groups[0]["lr"] = recipe.learning_rate(step)
        targets = labels(pairs, tokens).to(device)
        loss = F.cross_entropy(
            logits(model, tokens).flatten(0, 1), targets.flatten(), ignore_index=-100
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        if (step + 1) % REPORT_EVERY == 0 or step + 1 == recipe.steps:
            mean, accuracy = sum(losses) / len(losses), validate(model, recipe.seed + 1)
            history.append({"step": step + 1, "loss": mean, "accuracy": accuracy})
            report(f"loss {mean:.1e}, accuracy {accuracy:.3f}", (step + 1) / recipe.steps)
            losses = []
    record = {
        "recipe": asdict(recipe),
        "steps": recipe.steps,
        "seconds": round(time.monotonic() - began),
    }
    record |= {"parameters": model.num_parameters(), "device": device, "torch": torch.__version__}
    record |= {"transformers": transformers.__version__, "commit": commit(), "history": history}
    return model, record


def logits(model: Any, tokens: Int[Tensor, "sum token"]) -> Float[Tensor, "sum read vocabulary"]:
    """Return teacher-forced logits of the answer and its end, computed in bfloat16."""
    inputs = tokens[:, :-1].to(model.device)
    with torch.autocast(model.device.type, torch.bfloat16):
        output = model(inputs, use_cache=False, logits_to_keep=tokens.shape[1] - PROMPT_LENGTH)
    return torch.as_tensor(output.logits).float()


@torch.inference_mode()
def validate(model: Any, seed: int) -> float:
    """Return the share of 1000 random sums whose answer and end are correct, teacher-forced."""
    tokens = encode(prompts.draw(1000, seed))
    expected = tokens[:, PROMPT_LENGTH:]
    right = logits(model, tokens).argmax(-1).cpu() == expected
    return (right | (expected == PAD)).all(1).double().mean().item()


def publish(model: Any, record: dict[str, Any], out: Path) -> list[str]:
    """Write the model as a Hugging Face folder, with its record; return the names of the files."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tokenizer().save_pretrained(folder)
        write_json(Path(folder) / "training.json", record)
        files = sorted(Path(folder).iterdir())
        with replacing_all(*(out / path.name for path in files)) as temporaries:
            for path, temporary in zip(files, temporaries, strict=True):
                shutil.copyfile(path, temporary)
    return [path.name for path in files]
