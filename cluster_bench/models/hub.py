"""A published model: from the Hugging Face hub, from its local cache, or from a folder."""

import json
import os
import shutil
from pathlib import Path
from typing import Any, cast

from pydantic.dataclasses import dataclass

from cluster_bench.artifacts import STRICT, Model, Workspace

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
FILES = ("*.json", "*.safetensors", "tokenizer.model", "*.jinja")


@dataclass(frozen=True, config=STRICT)
class Hub:
    """The published weights and a tokenizer with a chat template; ValueError, one line, if there are none.

    Weights in the hub's cache never change, so they are hard-linked where that is possible, not copied.
    """

    repo: str  # on the hub, or a folder
    revision: str  # a commit on the hub; for a folder, any word that names its contents
    template: str | None = None  # Jinja; for a base model that has no chat template, or to replace its own

    def __call__(self, work: Workspace) -> Model:
        source = self.source()
        files = self._weights(source)
        weights = work.folder / "weights"
        shutil.rmtree(weights, ignore_errors=True)
        weights.mkdir()
        self._tokenizer(source).save_pretrained(weights)
        put = shutil.copyfile if Path(self.repo).is_dir() else link
        for name in files:
            put((source / name).resolve(), weights / name)
        for name in ("config.json", "generation_config.json"):
            if (source / name).is_file():
                shutil.copyfile(source / name, weights / name)
        return Model(weights, parameters(weights))

    def source(self) -> Path:
        """The folder with the published files, downloaded if need be and possible."""
        if Path(self.repo).is_dir():
            return Path(self.repo)
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError

        try:
            folder = cast("Any", snapshot_download)(self.repo, revision=self.revision, allow_patterns=FILES)
        except (OSError, HfHubHTTPError, HFValidationError) as error:
            raise ValueError(
                f"model.repo: {self.repo} at {self.revision} is not on this machine and cannot be downloaded "
                f"({type(error).__name__}); fetch it where there is network with `hf download {self.repo} "
                f"--revision {self.revision}`, or set model.repo to a folder that holds it"
            ) from error
        return Path(folder)

    def _weights(self, source: Path) -> list[str]:
        """The names of the weight files, and of their index if there are several; all of them there."""
        names = [SINGLE]
        if not (source / SINGLE).is_file() and (source / INDEX).is_file():
            names = [INDEX, *sorted(set(json.loads((source / INDEX).read_text())["weight_map"].values()))]
        missing = [name for name in ("config.json", *names) if not (source / name).is_file()]
        if missing:
            raise ValueError(f"model.repo: {self.repo} lacks {', '.join(missing)} (looked in {source})")
        return names

    def _tokenizer(self, source: Path) -> Any:
        from transformers import AutoTokenizer

        try:
            tokenizer: Any = cast("Any", AutoTokenizer).from_pretrained(source)
        except (OSError, ValueError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ValueError(f"model.repo: {self.repo} has no usable tokenizer: {reason}") from error
        if self.template is not None:
            tokenizer.chat_template = self.template
        if not tokenizer.chat_template:
            raise ValueError(f"model.template: {self.repo} has no chat template; give one, in Jinja")
        return tokenizer


def link(source: Path, target: Path) -> None:
    """One file under a second name; a copy where the file system has no such thing."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def parameters(weights: Path) -> int:
    """How many numbers the model has, tied ones counted once; from its config, without loading any."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        config = cast("Any", AutoConfig).from_pretrained(weights)
        net: Any = cast("Any", AutoModelForCausalLM).from_config(config)
    return sum(p.numel() for p in net.parameters())
