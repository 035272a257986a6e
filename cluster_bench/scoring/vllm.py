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
    """As `generation.generate`, from the folder that the model was loaded from."""
    from vllm import LLM, SamplingParams  # pyright: ignore

    if not questions:
        return
    whole: Any = LLM(
        model.config._name_or_path,
        dtype=str(model.dtype).removeprefix("torch."),
        max_num_seqs=limits[0],
        gpu_memory_utilization=0.5,  # the options are asked of the other copy, beside it
    )
    engine = whole.llm_engine  # step by step, so that a program is run as soon as it is there
    greedy: Any = SamplingParams(temperature=0.0, max_tokens=limits[1], stop_token_ids=sorted(ends))
    for number, question in enumerate(questions):
        engine.add_request(str(number), {"prompt_token_ids": list(question)}, greedy)
    while engine.has_unfinished_requests():
        for output in engine.step():
            said = [token for token in output.outputs[0].token_ids if token not in ends]
            over = not output.finished and is_over is not None and is_over(said)
            if over:
                engine.abort_request([output.request_id])
            if over or output.finished:
                done(int(output.request_id), said)
