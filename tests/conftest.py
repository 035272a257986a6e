"""What the tests share: the composed configuration, a store, and a tiny model with tokens to train on."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HYDRA_FULL_ERROR", "1")

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster_bench.artifacts import Allocation, Model, Tokens
from cluster_bench.store import Store

SIZES = np.array([20, 12, 10, 6])  # rows per cluster before selection


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture(scope="session")
def tree() -> Callable[..., dict[str, Any]]:
    """Compose the real configuration, with overrides as on the command line."""
    from cluster_bench.cells import compose, resolve

    return lambda *overrides: resolve(*compose(overrides))


@pytest.fixture(scope="session")
def experiment(tree: Callable[..., dict[str, Any]]) -> Callable[..., Any]:
    from cluster_bench.config import structure

    return lambda *overrides: structure(tree(*overrides))


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A random Llama of 2 layers and 40 tokens, saved as the base models are."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config)
    folder = tmp_path_factory.mktemp("tiny") / "weights"
    model.save_pretrained(folder)
    return Model(folder, sum(p.numel() for p in model.parameters()))


@pytest.fixture(scope="session")
def tiny_tokens() -> Tokens:
    """48 rows of very different lengths, prompts of 1 to 5 tokens and responses of 1 to 20."""
    rng = np.random.default_rng(0)
    prompts, responses = rng.integers(1, 6, 48), rng.integers(1, 21, 48)
    starts = np.concatenate([[0], np.cumsum(prompts + responses)]).astype(np.int64)
    ids = rng.integers(0, 40, starts[-1]).astype(np.int32)
    return Tokens(ids, starts, starts[:-1] + prompts, np.arange(48), [])


@pytest.fixture(scope="session")
def allocation() -> Allocation:
    """Six rows of each of four clusters of the 48 tiny rows, weighted K n_c / N, cluster c on rank c."""
    labels = np.repeat(np.arange(4), SIZES)
    rows = np.concatenate([np.flatnonzero(labels == c)[:6] for c in range(4)])
    weight = (4 * SIZES[labels[rows]] / 48).astype(np.float32)
    return Allocation(rows, labels[rows], weight, 4)
