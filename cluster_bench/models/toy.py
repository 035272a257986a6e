"""The base models of the toy world: small Llamas, pre-trained here on formats and simple skills."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic.dataclasses import dataclass

from cluster_bench.artifacts import STRICT, Model, Workspace
from cluster_bench.machine import torch_threads
from cluster_bench.progress import progress

if TYPE_CHECKING:
    import torch

POOL = 8  # batches drawn together and sorted by length, so that a batch pads little


@dataclass(frozen=True, config=STRICT)
class ToyBase:
    """Pre-trains a Llama on one thread, so that the same fields give the same bytes on one machine.

    AdamW, linear warm-up over a tenth of the steps, cosine decay; the loss is the mean over rows of the mean
    cross-entropy over the answer's tokens.
    """

    hidden: int
    layers: int
    heads: int
    intermediate: int
    code_skills: int  # the corpora's; the simple ones among them are learned here
    medical_skills: int
    steps: int
    batch: int  # rows per step
    lr: float  # peak
    spread: float  # standard deviation of the first weights; at the usual 0.02 copying comes too late
    seed: int

    def __post_init__(self) -> None:
        if self.hidden % (2 * self.heads):
            raise ValueError(
                f"hidden {self.hidden} does not divide into {self.heads} heads of an even size; "
                f"{self.hidden // (2 * self.heads) * 2 * self.heads} would"
            )
        if min(self.steps, self.batch) < 1:
            raise ValueError(f"steps {self.steps} and batch {self.batch} must be at least 1")

    def __call__(self, workspace: Workspace) -> Model:
        import torch

        from cluster_bench.world import tokenizer

        weights = workspace.folder / "weights"
        weights.mkdir(exist_ok=True)
        words = tokenizer.save(weights)
        with torch_threads(1), torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            model = self._fresh(words)
            self._pretrain(model, words)
        model.save_pretrained(weights)
        return Model(weights, sum(p.numel() for p in model.parameters()))

    def _fresh(self, words: Any) -> Any:
        from transformers import LlamaConfig, LlamaForCausalLM

        return LlamaForCausalLM(
            LlamaConfig(
                vocab_size=len(words),
                hidden_size=self.hidden,
                intermediate_size=self.intermediate,
                num_hidden_layers=self.layers,
                num_attention_heads=self.heads,
                num_key_value_heads=self.heads,
                max_position_embeddings=512,
                tie_word_embeddings=True,
                initializer_range=self.spread,
                bos_token_id=words.bos_token_id,
                eos_token_id=words.eos_token_id,
                pad_token_id=words.pad_token_id,
            )
        )

    def _pretrain(self, model: Any, words: Any) -> None:
        import torch

        optimizer = torch.optim.AdamW(model.parameters(), lr=self.lr, weight_decay=0.01)
        rng = np.random.default_rng(self.seed)
        warm = max(1, self.steps // 10)
        model.train()
        with progress("pre-training", self.steps, "steps") as advance:
            for first in range(0, self.steps, POOL):
                for step, rows in enumerate(self._pool(words, rng), first):
                    if step == self.steps:
                        break
                    done = max(0, step - warm) / max(1, self.steps - warm)
                    rate = min((step + 1) / warm, 0.5 + 0.5 * math.cos(math.pi * done))
                    optimizer.param_groups[0]["lr"] = self.lr * rate
                    answer_loss(model, rows).backward()
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=True)
                    advance(1)

    def _pool(self, words: Any, rng: np.random.Generator) -> list[list[tuple[list[int], list[int]]]]:
        """`POOL` batches of (prompt tokens, answer tokens), each of rows of like length."""
        from cluster_bench.world.lessons import lesson

        lessons = [lesson(rng, self.code_skills, self.medical_skills) for _ in range(POOL * self.batch)]
        turns = [[{"role": "user", "content": prompt}] for prompt, _ in lessons]
        texts = words.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        prompts = words(texts, add_special_tokens=False).input_ids
        answers = words(
            [answer + words.eos_token for _, answer in lessons], add_special_tokens=False
        ).input_ids
        rows = sorted(zip(prompts, answers, strict=True), key=lambda row: len(row[0]) + len(row[1]))
        order = rng.permutation(POOL).tolist()
        return [rows[i * self.batch : (i + 1) * self.batch] for i in order]


def answer_loss(model: Any, rows: list[tuple[list[int], list[int]]]) -> "torch.Tensor":
    """Mean over rows of the mean cross-entropy over each answer; rows padded at the right, unmasked."""
    import torch

    length = max(len(prompt) + len(answer) for prompt, answer in rows)
    ids = torch.zeros(len(rows), length, dtype=torch.int64)
    at: list[int] = []
    share: list[float] = []
    for i, (prompt, answer) in enumerate(rows):
        ids[i, : len(prompt) + len(answer)] = torch.tensor(prompt + answer)
        first = i * length + len(prompt) - 1
        at += range(first, first + len(answer))
        share += [1 / (len(rows) * len(answer))] * len(answer)
    target = torch.tensor([token for _, answer in rows for token in answer])
    hidden = model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
    logits = model.get_output_embeddings()(hidden.flatten(0, 1)[at])
    losses = torch.nn.functional.cross_entropy(logits, target, reduction="none")
    return (losses * torch.tensor(share)).sum()
