"""How rows become tokens: the template, the border between prompt and answer, what is cut or left out."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from cluster_bench.artifacts import Corpus, Model, Tokens
from cluster_bench.tokens import TOKENIZERS

TEMPLATE = (
    "{% for m in messages %}{{ '<s> ' + m.role + ' ' + m.content + ' <e> ' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s> assistant ' }}{% endif %}"
)
WORDS = [
    "<pad>",
    "<s>",
    "<e>",
    "<eos>",
    "user",
    "assistant",
    "PROMPT",
    "ANSWER",
    "add",
    "one",
    "two",
    "three",
    "?",
]


def save(folder: Path, template: str | None = TEMPLATE, eos: str | None = "<eos>") -> Model:
    inner = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="?"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token=eos, additional_special_tokens=["<s>", "<e>"]
    )
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    return Model(folder, 0)


def words(tokens: Tokens, n: int) -> tuple[str, str]:
    """Row n in words: what is given, what is learned."""
    begin, answer, end = tokens.starts[n], tokens.answers[n], tokens.starts[n + 1]
    given, learned = tokens.ids[begin:answer], tokens.ids[answer:end]
    return " ".join(WORDS[i] for i in given), " ".join(WORDS[i] for i in learned)


def slow(corpus: Corpus, model: Model, end: int, max_length: int) -> list[list[int]]:
    """The rows by the book, one at a time; the ones without an answer are left out."""
    tokenizer: Any = AutoTokenizer.from_pretrained(model.weights)
    rows: list[list[int]] = []
    for prompt, answer in zip(corpus.prompts, corpus.answers, strict=True):
        turn = [{"role": "user", "content": prompt}]
        given = tokenizer.apply_chat_template(
            turn, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        learned = tokenizer(answer, add_special_tokens=False).input_ids
        if learned and len(given) < max_length:
            rows.append([*given, *learned, end][:max_length])
    return rows


def corpus(rows: Sequence[tuple[str, str]]) -> Corpus:
    return Corpus([prompt for prompt, _ in rows], [answer for _, answer in rows])


def test_a_row_is_the_templated_prompt_then_the_answer_then_the_end_of_the_turn(tmp_path: Path) -> None:
    tokens = TOKENIZERS["chat"](max_length=20)(
        corpus([("add one", "two three"), ("two", "one")]), save(tmp_path)
    )
    assert words(tokens, 0) == ("<s> user add one <e> <s> assistant", "two three <e>")
    assert words(tokens, 1) == ("<s> user two <e> <s> assistant", "one <e>")
    assert list(tokens.lengths) == [10, 8]
    assert list(tokens.response_lengths) == [3, 2]
    assert tokens.left_out == []


def test_a_template_without_an_end_of_turn_ends_in_the_end_of_sequence(tmp_path: Path) -> None:
    model = save(tmp_path, "{% for m in messages %}{{ m.content + ' ' }}{% endfor %}")
    tokens = TOKENIZERS["chat"](max_length=20)(corpus([("add one", "two")]), model)
    assert words(tokens, 0) == ("add one", "two <eos>")


def test_agrees_with_the_slow_version_over_many_chunks(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)

    def text(low: int) -> str:
        return " ".join(rng.choice(WORDS[8:12], size=rng.integers(low, 9)))

    data, model = corpus([(text(1), text(0)) for _ in range(2500)]), save(tmp_path)
    tokens = TOKENIZERS["chat"](max_length=12)(data, model)
    expected = slow(data, model, end=WORDS.index("<e>"), max_length=12)
    assert [list(part) for part in np.split(tokens.ids, tokens.starts[1:-1])] == expected
    assert len(tokens) + len(tokens.left_out) == len(data)
    assert (np.diff(tokens.rows) > 0).all()
    assert (tokens.answers > tokens.starts[:-1]).all()
    assert (tokens.response_lengths > 0).all()


def test_rows_are_cut_at_the_right_or_left_out_and_listed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [("add", "one two three"), ("add one two three", "one"), ("add", " \n"), ("add", "one")]
    tokens = TOKENIZERS["chat"](max_length=8)(corpus(rows), save(tmp_path))
    assert list(tokens.rows) == [0, 3]
    assert words(tokens, 0)[1] == "one two"
    assert words(tokens, 1)[1] == "one <e>"
    assert tokens.left_out == [
        "row 1: max_length 8 leaves no room for an answer after 9 prompt tokens",
        "row 2: the answer is empty",
    ]
    assert "1 of 2 answers are cut short at max_length 8" in caplog.text


def test_a_corpus_with_nothing_to_learn_is_refused(tmp_path: Path) -> None:
    model, method = save(tmp_path), TOKENIZERS["chat"](max_length=8)
    with pytest.raises(ValueError, match="the corpus has no rows"):
        method(Corpus([], []), model)
    with pytest.raises(ValueError, match="all 1 rows of the corpus are left out; row 0: the answer is empty"):
        method(corpus([("add", "")]), model)


def test_a_model_that_cannot_chat_is_refused(tmp_path: Path) -> None:
    rows, method = corpus([("add", "one")]), TOKENIZERS["chat"](max_length=8)
    with pytest.raises(ValueError, match="no chat template"):
        method(rows, save(tmp_path / "mute", template=None))
    endless = save(tmp_path / "endless", "{% for m in messages %}{{ m.content }}{% endfor %}", eos=None)
    with pytest.raises(ValueError, match="which token ends an answer"):
        method(rows, endless)


def test_no_room_for_prompt_and_answer_is_refused() -> None:
    with pytest.raises(ValueError, match=r"max_length must be at least 2 .*, got 1"):
        TOKENIZERS["chat"](max_length=1)
