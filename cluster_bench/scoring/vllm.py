"""Greedy generation by vLLM, where it is installed, with the interface of generation.py."""

from collections.abc import Callable, Sequence
from typing import Any


def generate(
    model: Any,
    questions: Sequence[Sequence[int]],
    ends: set[int],
    limits: tuple[int, int],
    done: Callable[[int, list[int]], None],
    is_over: Callable[[list[int]], bool] | None = None,
) -> None:
    """As `generation.generate`, from the folder that the model was loaded from; `is_over` ends nothing here:
    what goes beyond a stop string is cut off afterwards."""
    from vllm import LLM, SamplingParams  # pyright: ignore

    if not questions:
        return
    engine: Any = LLM(
        model.config._name_or_path,
        dtype=str(model.dtype).removeprefix("torch."),
        max_num_seqs=limits[0],
        gpu_memory_utilization=0.5,  # the options are asked of the other copy, beside it
    )
    greedy: Any = SamplingParams(temperature=0.0, max_tokens=limits[1], stop_token_ids=sorted(ends))
    prompts = [{"prompt_token_ids": list(question)} for question in questions]
    for number, output in enumerate(engine.generate(prompts, greedy, use_tqdm=False)):
        done(number, [token for token in output.outputs[0].token_ids if token not in ends])
