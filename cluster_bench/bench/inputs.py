"""What the bench trains on: rows of lengths as instruction data has them, and a small random Llama.

Lengths are drawn, not real: lognormal with a standard deviation as large as the mean, as in instruction sets
of mixed sources, and shorter than theirs so that a CPU gets through.
"""

from pathlib import Path

import numpy as np

from cluster_bench.artifacts import Model, Tokens

MEAN, LONGEST = 64, 512  # tokens
SPREAD = float(np.sqrt(np.log(2)))  # sigma of a lognormal whose standard deviation is its mean
VOCABULARY = 992  # that and the shape of the model: the toy model that stands for 7B


def rows(count: int, seed: int) -> Tokens:
    """Rows of random tokens; four tenths of each are the prompt."""
    rng = np.random.default_rng(seed)
    drawn = rng.lognormal(np.log(MEAN) - SPREAD**2 / 2, SPREAD, count)
    lengths = np.clip(drawn.round().astype(np.int64), 4, LONGEST)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    answers = starts[:-1] + np.maximum(1, lengths * 4 // 10)
    ids = rng.integers(0, VOCABULARY, starts[-1]).astype(np.int32)
    return Tokens(ids, starts, answers, np.arange(count), [])


def base(folder: Path) -> Model:
    """Save a random Llama."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    net = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=192,
            intermediate_size=448,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=LONGEST,
            tie_word_embeddings=True,
        )
    )
    net.save_pretrained(folder)
    return Model(folder, sum(p.numel() for p in net.parameters()))
