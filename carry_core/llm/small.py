"""A small Llama, trained from scratch on four-digit sums written as text, to run Sec. 6 on where no 7B model fits.

It learns `1234 + 5678 = 6912` as the tokens `<s> 1 2 3 4 + 5 6 7 8 = 6 9 1 2 </s>`; only the answer and its end enter
the loss. Every batch is new; the prompts of the protocol are never among them. Models of growing width are trained
until one gets 0.95 of other random sums right; that one is kept. All have four layers of eight heads, so that a pair of
heads is a choice among 496: smaller shapes learn to add too, but need nearly every head, and where any pair is vital an
ablated pair says nothing.
"""

import json
import math
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from jaxtyping import Int
from numpy.random import SeedSequence
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from carry_core.errors import BadInput
from carry_core.files import check_writable, commit, replacing, write_json
from carry_core.llm import prompts
from carry_core.llm.loading import quiet
from carry_core.sums import digits

SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")
TOKENS = (*SPECIAL, "+", "=", *"0123456789")
PAD, BOS, EOS, PLUS, EQUALS, ZERO = (TOKENS.index(token) for token in ("<pad>", "<s>", "</s>", "+", "=", "0"))
PROMPT_LENGTH = 2 * prompts.DIGITS + 3  # <s> a a a a + b b b b =
ENOUGH = 0.95  # whole answers right, to be kept
SAVE_EVERY = 30.0  # seconds between checkpoints
REPORT_EVERY = 100  # steps between validations
N_VALIDATION = 1000


@dataclass(frozen=True)
class Recipe:
    """What is trained, and how.

    Attributes:
        carrying: share of a batch in which columns that add up to nine are as frequent as all others together, so
            that ones which travel far are met often; the rest is drawn as the prompts are.
    """

    width: int
    layers: int = 4
    heads: int = 8
    steps: int = 2000
    batch: int = 512
    rate: float = 2e-3
    warmup: int = 300
    decay: float = 0.1
    carrying: float = 0.5
    seed: int = 0

    @property
    def name(self) -> str:
        return f"small_width{self.width}"

    def learning_rate(self, step: int) -> float:
        """Linear warm-up, then a cosine down to nothing."""
        if step < self.warmup:
            return self.rate * (step + 1) / self.warmup
        return self.rate * (1 + math.cos(math.pi * (step - self.warmup) / (self.steps - self.warmup))) / 2


LADDER = (Recipe(16), Recipe(32), Recipe(48), Recipe(64), Recipe(128))


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a digit, and one each for `+` and `=`; spaces only separate."""
    core = Tokenizer(models.WordLevel({token: i for i, token in enumerate(TOKENS)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(True)])
    core.decoder = decoders.Fuse()
    core.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BOS)])
    return PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>",
        padding_side="left", clean_up_tokenization_spaces=False,
    )  # fmt: skip


def build(recipe: Recipe) -> LlamaForCausalLM:
    """A Llama with fresh weights."""
    config = LlamaConfig(
        vocab_size=len(TOKENS), hidden_size=recipe.width, intermediate_size=2 * recipe.width,
        num_hidden_layers=recipe.layers, num_attention_heads=recipe.heads, max_position_embeddings=64,
        initializer_range=0.05, pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS, tie_word_embeddings=False,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        model: LlamaForCausalLM = LlamaForCausalLM._from_config(config, attn_implementation="eager")
    return model


def encode(pairs: Int[Tensor, "sum 2"]) -> Int[Tensor, "sum token"]:
    """The tokens of sums and their answers, ended by `</s>` and padded; as the tokenizer would, but fast."""
    a, b = pairs.unbind(1)
    total = a + b
    answer = ZERO + digits(total, prompts.DIGITS + 1)
    end = torch.full_like(total, EOS).unsqueeze(1)
    answer = torch.cat([answer, end], 1)
    short = torch.cat([answer[:, 1:], torch.full_like(end, PAD)], 1)
    answer = torch.where((total < prompts.HIGH).unsqueeze(1), short, answer)
    signs = [torch.full_like(end, token) for token in (BOS, PLUS, EQUALS)]
    left, right = ZERO + digits(a, prompts.DIGITS), ZERO + digits(b, prompts.DIGITS)
    return torch.cat([signs[0], left, signs[1], right, signs[2], answer], 1)


def draw(recipe: Recipe, step: int) -> Int[Tensor, "sum 2"]:
    """The sums of batch number `step`."""
    generator = torch.Generator().manual_seed(int(SeedSequence([recipe.seed, step]).generate_state(1)[0]))
    pairs = torch.randint(prompts.LOW, prompts.HIGH, (recipe.batch, 2), generator=generator)
    a, b = digits(pairs, prompts.DIGITS).unbind(1)
    nines = torch.rand(b.shape, generator=generator) < 0.5
    nines[:, 0] &= a[:, 0] < 9  # b has no leading zero
    nines &= torch.rand(len(b), 1, generator=generator) < recipe.carrying
    b = torch.where(nines, 9 - a, b)
    return torch.stack([pairs[:, 0], (b * 10 ** torch.arange(prompts.DIGITS - 1, -1, -1)).sum(1)], 1)


def _codes(pairs: Int[Tensor, "sum 2"]) -> Int[Tensor, " sum"]:
    return pairs[:, 0] * prompts.HIGH + pairs[:, 1]


def labels(pairs: Int[Tensor, "sum 2"], tokens: Int[Tensor, "sum token"]) -> Int[Tensor, "sum read"]:
    """What each position from `=` on should predict; -100 after the end, and for the protocol's prompts."""
    wanted = tokens[:, PROMPT_LENGTH:].clone()
    wanted[wanted == PAD] = -100
    wanted[torch.isin(_codes(pairs), _codes(prompts.draw(1000)))] = -100
    return wanted


class Trainer:
    """AdamW on ever new sums; what is saved can be gone on with to the same bits."""

    def __init__(self, recipe: Recipe, device: str = "cpu") -> None:
        self.recipe, self.device = recipe, device
        self.model: Any = build(recipe).train()
        self.model.to(device)
        self.step, self.seconds = 0, 0.0
        self.history: list[dict[str, float]] = []
        self.optimiser = torch.optim.AdamW(
            self.model.parameters(), lr=recipe.rate, betas=(0.9, 0.98), weight_decay=recipe.decay, fused=True
        )
        for p in self.model.parameters():  # as AdamW makes them at its first step
            self.optimiser.state[p] = {
                "step": torch.zeros((), device=device),
                "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p),
            }  # fmt: skip

    def logits(self, tokens: Int[Tensor, "sum token"]) -> Tensor:
        """Teacher-forced logits of the answer and its end, `[sum, read, token]`, computed in bfloat16."""
        inputs = tokens[:, :-1].to(self.device)
        with torch.autocast(self.device, torch.bfloat16):
            found = self.model(inputs, use_cache=False, logits_to_keep=tokens.shape[1] - PROMPT_LENGTH)
        return torch.as_tensor(found.logits).float()

    def train_step(self) -> float:
        """One step of AdamW; the loss before it."""
        pairs = draw(self.recipe, self.step)
        tokens = encode(pairs)
        for group in self.optimiser.param_groups:
            group["lr"] = self.recipe.learning_rate(self.step)
        wanted = labels(pairs, tokens).to(self.device)
        loss = F.cross_entropy(self.logits(tokens).flatten(0, 1), wanted.flatten(), ignore_index=-100)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        self.step += 1
        return loss.item()

    @torch.inference_mode()
    def validate(self) -> float:
        """Share of random sums whose answer and end are all right, each token after the right ones before it."""
        generator = torch.Generator().manual_seed(self.recipe.seed + 1)
        pairs = torch.randint(prompts.LOW, prompts.HIGH, (N_VALIDATION, 2), generator=generator)
        tokens = encode(pairs)
        wanted = tokens[:, PROMPT_LENGTH:]
        right = self.logits(tokens).argmax(-1).cpu() == wanted
        return (right | (wanted == PAD)).all(1).double().mean().item()

    def save(self, path: Path) -> None:
        """Write weights, AdamW's moments and where the training stands, whole or not at all."""
        tensors = {f"model.{name}": p.detach() for name, p in self.model.named_parameters()}
        for name, p in self.model.named_parameters():
            tensors |= {f"{key}.{name}": value for key, value in self.optimiser.state[p].items()}
        record = {
            "recipe": asdict(self.recipe), "step": self.step, "seconds": self.seconds, "history": self.history,
        }  # fmt: skip
        with replacing(path) as temporary:
            save_file(tensors, temporary, {"record": json.dumps(record)})

    def load(self, path: Path) -> None:
        """Take the training up where `path` left it.

        Raises:
            BadInput: the file is damaged, or of another recipe.
        """
        try:
            with safe_open(path, "pt") as file:
                record = json.loads(file.metadata()["record"])
                if record["recipe"] == asdict(self.recipe):
                    for name, p in self.model.named_parameters():
                        p.data.copy_(file.get_tensor(f"model.{name}"))
                        for key, value in self.optimiser.state[p].items():
                            value.copy_(file.get_tensor(f"{key}.{name}"))
        except (SafetensorError, OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise BadInput(f"Checkpoint {path} is damaged ({error}): delete it to train anew.") from error
        if record["recipe"] != asdict(self.recipe):
            raise BadInput(f"Checkpoint {path} is of another recipe: move it away to train this one.")
        self.step, self.seconds, self.history = record["step"], record["seconds"], record["history"]


def train(
    recipe: Recipe,
    checkpoint: Path,
    device: str = "cpu",
    report: Callable[[Trainer], None] = lambda trainer: None,
) -> Trainer:
    """Train to the end of the recipe, going on from `checkpoint` where there is one."""
    trainer = Trainer(recipe, device)
    if checkpoint.exists():
        trainer.load(checkpoint)
    saved = began = time.monotonic()
    before, losses = trainer.seconds, []
    while trainer.step < recipe.steps:
        losses.append(trainer.train_step())
        due = trainer.step % REPORT_EVERY == 0 or trainer.step == recipe.steps
        if due:
            loss = sum(losses) / len(losses)
            trainer.history.append({"step": trainer.step, "loss": loss, "accuracy": trainer.validate()})
            losses = []
            report(trainer)
        now = time.monotonic()
        if trainer.step == recipe.steps or (due and now - saved > SAVE_EVERY):
            trainer.seconds, saved = before + now - began, now
            trainer.save(checkpoint)
    return trainer


def climb(
    out: Path,
    checkpoints: Path,
    device: str = "cpu",
    report: Callable[[Trainer], None] = lambda trainer: None,
    ladder: Sequence[Recipe] | None = None,
) -> list[str]:
    """Train the sizes of the ladder, smallest first, and write the first good one to `out`; the names of its files.

    Raises:
        BadInput: a folder cannot be written, a checkpoint is damaged, or no size was good.
    """
    check_writable(out)
    check_writable(checkpoints)
    steps: list[dict[str, Any]] = []
    for recipe in LADDER if ladder is None else ladder:
        trainer = train(recipe, checkpoints / f"{recipe.name}.safetensors", device, report)
        accuracy = trainer.history[-1]["accuracy"]
        parameters = sum(p.numel() for p in trainer.model.parameters())
        steps.append(asdict(recipe) | {"parameters": parameters, "accuracy": accuracy})
        if accuracy >= ENOUGH:
            return publish(trainer, out, steps)
    raise BadInput(f"No size reached {ENOUGH}: the best had {max(s['accuracy'] for s in steps)}. Try a longer ladder.")


def publish(trainer: Trainer, out: Path, ladder: list[dict[str, Any]]) -> list[str]:
    """Write the model as a Hugging Face folder, with a record of its training; returns the files' names."""
    record = {
        "recipe": asdict(trainer.recipe), "steps": trainer.step, "seconds": round(trainer.seconds),
        "device": trainer.device, "torch": torch.__version__, "transformers": transformers.__version__,
        "commit": commit(), "ladder": ladder, "history": trainer.history,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        with quiet():
            trainer.model.save_pretrained(folder)
            tokenizer().save_pretrained(folder)
        write_json(Path(folder) / "training.json", record)
        names = sorted(path.name for path in Path(folder).iterdir())
        for name in names:
            with replacing(out / name) as temporary:
                shutil.copyfile(Path(folder) / name, temporary)
    return names
