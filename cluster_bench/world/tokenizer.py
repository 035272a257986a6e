"""The tokenizer of the toy world: byte-level BPE, fewer than 1,000 tokens, learned from the three corpora."""

import functools
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from cluster_bench.world.rows import Domain, Recipe, corpus_rows

VOCABULARY = 992
BOS, EOS, PAD, USER, ASSISTANT = "<s>", "</s>", "<pad>", "<|user|>", "<|assistant|>"
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'assistant' %}<|assistant|>{{ m.content }}</s>"
    "{% else %}<|user|>{{ m.content }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
PIECES = r" for [a-z] in| ?[A-Za-z]+| ?[0-9]|[^A-Za-z0-9]+?(?= ?[A-Za-z0-9]|$)|[^A-Za-z0-9]+"
"""` for x in`, a word with its space, a digit with its space, a run of anything else up to the next."""


def text() -> Iterator[str]:
    """What the vocabulary is learned from: the three corpora, at a size and seed of their own."""
    domains: tuple[Domain, ...] = ("oss", "evol", "medical")
    for domain in domains:
        recipe = Recipe(
            rows=1500, skills=96, zipf=0.3, filler=1.0, duplicates=0.0, mislabelled=0.0, truncated=0.0, seed=0
        )
        for row in corpus_rows(domain, recipe):
            yield row.prompt
            yield row.answer


@functools.cache
def learned() -> str:
    """The vocabulary and merges, as the tokenizers library writes them; always the same."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(  # pyright: ignore[reportAttributeAccessIssue]
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    bpe.train_from_iterator(
        text(),
        trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            special_tokens=[PAD, BOS, EOS, USER, ASSISTANT],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return bpe.to_str()


def build() -> PreTrainedTokenizerFast:
    """The tokenizer, with the chat template."""
    fast = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(learned()),
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        additional_special_tokens=[USER, ASSISTANT],
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )
    fast.chat_template = TEMPLATE
    return fast


def save(folder: Path) -> PreTrainedTokenizerFast:
    """Build it and write it in the Hugging Face layout."""
    fast = build()
    fast.save_pretrained(folder)
    return fast
