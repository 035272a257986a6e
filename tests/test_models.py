"""Models from the hub, from a folder and from a GGUF file, saved so that every stage can load them."""

import hashlib
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from cluster_bench.artifacts import Corpus, Model, Workspace
from cluster_bench.models import MODELS
from cluster_bench.tokens import TOKENIZERS

TEMPLATE = "{% for m in messages %}{{ m.content + ' <eos> ' }}{% endfor %}"
WORDS = ["<pad>", "<eos>", "?", "one", "two"]


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A base model as others publish one: several weight files, no chat template."""
    torch.manual_seed(0)
    net = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(WORDS),
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            tie_word_embeddings=True,
        )
    )
    net.save_pretrained(tmp_path / "published", max_shard_size="10KB")
    inner = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="?"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>").save_pretrained(
        tmp_path / "published"
    )
    return tmp_path / "published"


def work(tmp_path: Path) -> Workspace:
    (tmp_path / "work").mkdir(exist_ok=True)
    return Workspace(tmp_path / "work")


def logits(weights: Path) -> Any:
    net: Any = AutoModelForCausalLM.from_pretrained(weights).eval()
    with torch.inference_mode():
        return net(torch.arange(len(WORDS))[None]).logits.numpy()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_published_model_is_the_same_model_with_a_chat_template(published: Path, tmp_path: Path) -> None:
    before = contents(published)
    model = MODELS["hub"](repo=str(published), revision="v1", template=TEMPLATE)(work(tmp_path))
    assert model.weights == tmp_path / "work" / "weights"
    assert (logits(model.weights) == logits(published)).all()
    net: Any = AutoModelForCausalLM.from_pretrained(published)
    assert model.parameters == sum(p.numel() for p in net.parameters())
    assert len(list(model.weights.glob("*.safetensors"))) > 1
    assert contents(published) == before
    tokens = TOKENIZERS["chat"](max_length=9)(Corpus(["one"], ["two"]), model)
    assert [WORDS[i] for i in tokens.ids] == ["one", "<eos>", "two", "<eos>"]


def test_the_leftovers_of_a_killed_try_do_not_show(published: Path, tmp_path: Path) -> None:
    method = MODELS["hub"](repo=str(published), revision="v1", template=TEMPLATE)
    clean = contents(method(work(tmp_path)).weights)
    (tmp_path / "work" / "weights" / "model.safetensors").write_text("half")
    assert contents(method(work(tmp_path)).weights) == clean


def test_a_base_model_needs_a_template(published: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"model\.template: .* has no chat template"):
        MODELS["hub"](repo=str(published), revision="v1")(work(tmp_path))


def test_a_model_that_is_not_whole_is_named(published: Path, tmp_path: Path) -> None:
    first = sorted(published.glob("*.safetensors"))[0]
    first.unlink()
    with pytest.raises(ValueError, match=rf"model\.repo: .* lacks {first.name}"):
        MODELS["hub"](repo=str(published), revision="v1", template=TEMPLATE)(work(tmp_path))
    assert not list((tmp_path / "work").iterdir())


def test_a_model_without_a_tokenizer_is_named(published: Path, tmp_path: Path) -> None:
    for file in published.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(ValueError, match=r"model\.repo: .* has no usable tokenizer") as error:
        MODELS["hub"](repo=str(published), revision="v1", template=TEMPLATE)(work(tmp_path))
    assert "\n" not in str(error.value)


def test_a_model_that_is_not_there_offline_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match=r"model\.repo: some/where at main is not on this machine") as error:
        MODELS["hub"](repo="some/where", revision="main")(work(tmp_path))
    assert "hf download some/where --revision main" in str(error.value)
    assert "set model.repo to a folder" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"model\.package: no_such_package is not installed; pip install"):
        MODELS["gguf"](path="x.gguf", sha256="0", package="no_such_package")(work(tmp_path))
    with pytest.raises(ValueError, match=r"model\.path: there is no file .*x\.gguf"):
        MODELS["gguf"](path="x.gguf", sha256="0", package="json")(work(tmp_path))
    (tmp_path / "x.gguf").write_bytes(b"other weights")
    found = hashlib.sha256(b"other weights").hexdigest()
    with pytest.raises(ValueError, match=rf"model\.sha256: x\.gguf has {found}, not 0"):
        MODELS["gguf"](path=str(tmp_path / "x.gguf"), sha256="0")(work(tmp_path))


@pytest.mark.parametrize("name", ["codellama_7b", "codellama_13b", "llama2_7b", "llama2_13b"])
def test_the_given_templates_end_where_the_answer_begins(name: str, published: Path) -> None:
    from omegaconf import OmegaConf

    option: Any = OmegaConf.load(Path(__file__).parents[1] / "conf" / "model" / f"{name}.yaml")
    tokenizer: Any = AutoTokenizer.from_pretrained(published)
    tokenizer.bos_token, tokenizer.chat_template = "<bos>", option.model.template
    ask = {"role": "user", "content": "Add one."}
    asked = tokenizer.apply_chat_template([ask], add_generation_prompt=True, tokenize=False)
    whole = tokenizer.apply_chat_template([ask, {"role": "assistant", "content": "x + 1"}], tokenize=False)
    assert whole == asked + "x + 1<eos>"
    assert asked.startswith("<bos>")
    assert asked.endswith(
        " Instruction:\nAdd one.\n\n### Response:\n" if "llama2" in name else "@@ Response\n"
    )


@pytest.mark.real
@pytest.mark.timeout(900)
def test_smollm2_speaks(tmp_path: Path) -> None:
    """The unpacked file is the model: it has its size, its template, and knows a capital."""
    from omegaconf import OmegaConf

    option: Any = OmegaConf.load(Path(__file__).parents[1] / "conf" / "model" / "smollm2.yaml")
    values: dict[str, Any] = {str(name): value for name, value in option.items() if name != "kind"}
    if importlib.util.find_spec(values["package"]) is None:
        pytest.skip(f"the package {values['package']} is not installed")
    model: Model = MODELS["gguf"](**values)(work(tmp_path))
    assert model.parameters == 134_515_008
    tokenizer: Any = AutoTokenizer.from_pretrained(model.weights)
    net: Any = AutoModelForCausalLM.from_pretrained(model.weights)
    ask = [{"role": "user", "content": "What is the capital of France?"}]
    ids = tokenizer.apply_chat_template(
        ask, add_generation_prompt=True, return_tensors="pt", return_dict=True
    ).input_ids
    said = net.generate(ids, max_new_tokens=12, do_sample=False)[0, ids.shape[1] :]
    assert "Paris" in tokenizer.decode(said)
    tokens = TOKENIZERS["chat"](max_length=200)(Corpus(["Add 1 and 2."], ["It is 3."]), model)
    assert tokenizer.decode(tokens.ids).endswith("<|im_start|>assistant\nIt is 3.<|im_end|>")
    assert tokenizer.decode(tokens.ids[tokens.answers[0] :]) == "It is 3.<|im_end|>"
    assert np.isfinite(tokens.ids).all()
