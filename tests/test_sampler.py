"""The plan in other people's trainers: no row lost or doubled, the gradient of our own loop."""

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import transformers.models.llama.modeling_llama  # noqa: F401  (before the forks)
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

from cluster_bench.artifacts import Allocation, Tokens, save
from cluster_bench.torch import PlanSampler, stored_plan
from cluster_bench.training.layouts import LAYOUTS
from cluster_bench.training.plan import Plan, build_plan

RATE = 0.1


def allocated(tokens: Tokens, ranks: int, layout: str = "stratified") -> Allocation:
    """Every second row, in two clusters of unequal weight."""
    rows = np.arange(0, len(tokens), 2)
    rank = np.random.default_rng(0).permutation(np.arange(len(rows)) % ranks)
    weight = np.where(np.arange(len(rows)) % 2, 1.5, 0.5).astype(np.float32)
    lengths = tokens.lengths[rows]
    return Allocation(rows, rank, weight, ranks, layout=layout, cluster=rank.copy(), lengths=lengths)


class Rows(torch.utils.data.Dataset[dict[str, Any]]):
    """The usable rows as anyone would keep them, with the weights as a column."""

    def __init__(self, tokens: Tokens, weights: np.ndarray) -> None:
        self.tokens, self.weights = tokens, weights

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, row: int) -> dict[str, Any]:
        start, end, answer = self.tokens.starts[row], self.tokens.starts[row + 1], self.tokens.answers[row]
        ids = torch.tensor(self.tokens.ids[start:end].astype(np.int64))
        labels = torch.where(torch.arange(end - start) >= answer - start, ids, -100)
        return {"row": row, "ids": ids, "labels": labels, "weight": self.weights[row]}


def collate(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    def padded(name: str, value: int) -> torch.Tensor:
        return nn.utils.rnn.pad_sequence([r[name] for r in rows], batch_first=True, padding_value=value)

    return {
        "input_ids": padded("ids", 0),
        "labels": padded("labels", -100),
        "weight": torch.tensor([r["weight"] for r in rows]),
        "row": torch.tensor([r["row"] for r in rows]),
    }


def weighted_loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """As a user would write it: the mean loss of each row's response, times the row's weight, summed."""
    logits = model(batch["input_ids"]).logits[:, :-1]
    labels = batch["labels"][:, 1:]
    losses = nn.functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
    return ((losses.sum(1) / (labels != -100).sum(1)) * batch["weight"].to(losses.dtype)).sum()


def step_by_the_formula(model: nn.Module, tokens: Tokens, plan: Plan, step: int) -> None:
    """Plain gradient descent along (1 / rows of the step) sum_i w_i l_i, one row at a time."""
    model.zero_grad()
    for rank in range(plan.ranks):
        for row, weight in zip(*plan.batch(step, rank), strict=True):
            start, end, answer = tokens.starts[row], tokens.starts[row + 1], tokens.answers[row]
            ids = torch.tensor(tokens.ids[start:end].astype(np.int64))
            logits = model(ids[None]).logits[0, answer - start - 1 : -1]
            loss = nn.functional.cross_entropy(logits, ids[answer - start :])
            (loss * weight / len(plan.step_rows(step))).backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= RATE * parameter.grad


def double(model: Any) -> nn.Module:
    return AutoModelForCausalLM.from_pretrained(model.weights, dtype=torch.float64)


def distance(a: nn.Module, b: nn.Module) -> float:
    pairs = zip(a.parameters(), b.parameters(), strict=True)
    return max(float((x - y).detach().norm() / y.detach().norm()) for x, y in pairs)


@given(
    layout=st.sampled_from(sorted(LAYOUTS)),
    ranks=st.integers(1, 3),
    micro_batch=st.none() | st.integers(3, 6),
    start=st.integers(0, 5),
)
@settings(max_examples=12, deadline=None)
def test_what_is_planned_is_yielded(tiny_tokens, layout, ranks, micro_batch, start):
    """Over all ranks and epochs each row comes exactly as often as in the plan, from any step on."""
    plan = build_plan(allocated(tiny_tokens, ranks, layout), 2, 4 * ranks, 0)
    each, start = plan.steps // 2, min(start, plan.steps)
    seen: Counter[int] = Counter()
    for rank in range(ranks):
        counts = np.diff(plan.offsets)
        assume = micro_batch is None or counts.min() >= -(-counts.max() // micro_batch)
        if not assume:
            with pytest.raises(ValueError, match="fewer than"):
                PlanSampler(plan, rank, micro_batch)
            return
        sampler = PlanSampler(plan, rank, micro_batch, epochs=2, start_step=start)
        whole = list(sampler)
        assert len(sampler) == len(whole) == (plan.steps - start) * sampler.accumulation
        assert all(0 < len(rows) <= (micro_batch or 99) for rows in whole)
        in_epochs = []
        for epoch in range(2):
            sampler.set_epoch(epoch)
            in_epochs += list(sampler)
            assert len(sampler) == (each - max(0, min(each, start - epoch * each))) * sampler.accumulation
        assert in_epochs == whole
        seen.update(row for rows in whole for row in rows)
    planned = plan.rows[plan.offsets[start * ranks] :]
    assert seen == Counter(planned.tolist())


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_weights_are_each_rows_share_of_the_step(tiny_tokens, layout):
    plan = build_plan(allocated(tiny_tokens, 2, layout), 2, 8, 0)
    column = PlanSampler(plan, 0).weight_column(len(tiny_tokens))
    assert (column[1::2] == 0).all()
    for rank in range(2):
        for batch in PlanSampler(plan, rank).batches():
            rows, weights = plan.batch(batch.step, rank)
            assert batch.rows == rows.tolist()
            assert batch.last
            np.testing.assert_array_equal(batch.weights, weights / len(plan.step_rows(batch.step)))
            np.testing.assert_allclose(column[rows], batch.weights, rtol=1e-9)
    np.testing.assert_allclose(column[::2], np.tile([0.5, 1.5], 12) * 3 / 24)  # w_i x steps of an epoch / m


def test_a_column_of_uneven_random_batches_is_right_on_average(tiny_tokens):
    allocation = allocated(tiny_tokens, 2, "shuffled")
    plan = build_plan(allocation, 2, 10, 0)  # 12 rows of a rank in 3 steps: 4 each
    uneven = dataclasses.replace(plan, offsets=np.array([0, 5, 10, 14, 18, 21, 24, 29, 33, 37, 41, 45, 48]))
    column = PlanSampler(uneven, 0).weight_column(len(tiny_tokens))
    np.testing.assert_allclose(column[allocation.rows], allocation.weight * 6 / 48)


def test_positions_are_those_of_the_corpus_where_rows_were_left_out(tiny_tokens):
    plan = build_plan(allocated(tiny_tokens, 1), 1, 8, 0)
    corpus_rows = np.arange(48) + 100
    inside, outside = list(PlanSampler(plan, 0)), list(PlanSampler(plan, 0, rows=corpus_rows))
    assert outside == [[row + 100 for row in rows] for rows in inside]


def test_a_plan_is_read_from_a_file_a_training_or_an_allocation(tiny_tokens, tmp_path):
    allocation = allocated(tiny_tokens, 2)
    plan = build_plan(allocation, 2, 8, 5)
    plan.save(tmp_path / "plan.npz")
    save(allocation, tmp_path)
    for given_plan in (tmp_path / "plan.npz", str(tmp_path), stored_plan(tmp_path, 2, 8, 5)):
        assert list(PlanSampler(given_plan, 1)) == list(PlanSampler(plan, 1))


def test_in_a_plain_loop_the_gradient_is_our_loops(tiny_tokens, tiny_model):
    plan = build_plan(allocated(tiny_tokens, 2), 1, 8, 0)
    ours, theirs = double(tiny_model), double(tiny_model)
    for step in range(2):
        step_by_the_formula(ours, tiny_tokens, plan, step)
    samplers = [PlanSampler(plan, rank, micro_batch=3) for rank in range(2)]
    data = Rows(tiny_tokens, samplers[0].weight_column(len(tiny_tokens)))
    loaders = [iter(DataLoader(data, batch_sampler=sampler, collate_fn=collate)) for sampler in samplers]
    for _ in range(2):
        theirs.zero_grad()
        for loader in loaders:
            for _ in range(samplers[0].accumulation):
                weighted_loss(theirs, next(loader)).backward()
        with torch.no_grad():
            for parameter in theirs.parameters():
                parameter -= RATE * parameter.grad
    assert distance(ours, double(tiny_model)) > 1e-3, "nothing was learned, so nothing was compared"
    assert distance(theirs, ours) < 1e-6  # the weights of the allocation are float32


def test_in_hugging_face_trainer(tiny_tokens, tiny_model, tmp_path):
    """With an unprepared loader, accumulation, two epochs as one pass: our loop's weights, no row lost."""
    from transformers import Trainer, TrainingArguments

    plan = build_plan(allocated(tiny_tokens, 1), 2, 8, 0)
    sampler = PlanSampler(plan, 0, micro_batch=3)
    seen: list[list[int]] = []

    class PlanTrainer(Trainer):
        loss_is_scaled_for_ga = True  # the weights sum over micro-batches as they are

        def get_train_dataloader(self) -> DataLoader[Any]:
            return DataLoader(self.train_dataset, batch_sampler=sampler, collate_fn=collate)

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            seen.append(inputs["row"].tolist())
            return weighted_loss(model, inputs)

    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        num_train_epochs=1,
        gradient_accumulation_steps=sampler.accumulation,
        optim="sgd",
        learning_rate=RATE,
        lr_scheduler_type="constant",
        max_grad_norm=0,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    ours, theirs = double(tiny_model), double(tiny_model)
    data = Rows(tiny_tokens, sampler.weight_column(len(tiny_tokens)))
    trainer = PlanTrainer(model=theirs, args=arguments, train_dataset=data)
    trainer.train()
    for step in range(plan.steps):
        step_by_the_formula(ours, tiny_tokens, plan, step)
    assert seen == list(sampler)
    assert Counter(row for rows in seen for row in rows) == Counter(plan.rows.tolist())
    assert trainer.state.global_step == plan.steps
    assert distance(theirs, ours) < 1e-6


def _accelerated(rank: int, folder: Path, tokens: Tokens, weights: Path) -> None:
    """One of two processes: everything but the loader is prepared."""
    import os

    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
    os.environ |= {name: str(value) for name, value in place.items()}
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)  # of a Trainer in the process forked from
    accelerator = Accelerator(cpu=True)
    assert accelerator.num_processes == 2
    sampler = PlanSampler(folder / "plan.npz", accelerator.process_index, micro_batch=3)
    data = Rows(tokens, sampler.weight_column(len(tokens)))
    loader = DataLoader(data, batch_sampler=sampler, collate_fn=collate)
    with pytest.raises(ValueError, match="leave it out of"):
        accelerator.prepare(loader)  # it would hand every second batch to the other rank
    model = AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    model, optimizer = accelerator.prepare(model, optimizer)
    seen: list[list[int]] = []
    for count, batch in enumerate(loader, 1):
        seen.append(batch["row"].tolist())
        last = count % sampler.accumulation == 0
        with accelerator.accumulate(model) if last else accelerator.no_sync(model):
            accelerator.backward(weighted_loss(model, batch) * accelerator.num_processes)
        if last:
            optimizer.step()
            optimizer.zero_grad()
    torch.save((seen, accelerator.unwrap_model(model).state_dict()), folder / f"{rank}.pt")
    dist.destroy_process_group()


def test_with_accelerate_on_two_processes(tiny_tokens, tiny_model, tmp_path):
    pytest.importorskip("accelerate")
    plan = build_plan(allocated(tiny_tokens, 2), 1, 8, 0)
    plan.save(tmp_path / "plan.npz")
    mp.start_processes(_accelerated, (tmp_path, tiny_tokens, tiny_model.weights), 2, start_method="fork")
    ours, theirs = double(tiny_model), double(tiny_model)
    for step in range(plan.steps):
        step_by_the_formula(ours, tiny_tokens, plan, step)
    seen: Counter[int] = Counter()
    for rank in range(2):
        rows, weights = torch.load(tmp_path / f"{rank}.pt")
        assert rows == list(PlanSampler(plan, rank, micro_batch=3))
        seen.update(row for batch in rows for row in batch)
        theirs.load_state_dict(weights)
        assert distance(theirs, ours) < 1e-6
    assert seen == Counter(plan.rows.tolist())


def _plan(offsets: list[int], ranks: int) -> Plan:
    return Plan(np.arange(offsets[-1]), np.ones(offsets[-1]), np.array(offsets), ranks)


@pytest.mark.parametrize(
    ("offsets", "fields", "says"),
    [
        ([0, 2, 4], {"rank": 2}, "rank 2 is none of the plan's 2"),
        ([0, 2, 4], {"rank": 0, "epochs": 2}, "the plan's 1 steps are not 2 equal epochs"),
        (
            [0, 5, 6],
            {"rank": 0, "micro_batch": 2},
            "rank 1 has 1 rows at step 0, fewer than 3 .* micro_batch of 5",
        ),
        (
            [0, 5, 5],
            {"rank": 0},
            "rank 1 has 0 rows at step 0, fewer than 1 micro-batches; take another global",
        ),
        ([0, 2, 4], {"rank": 0, "start_step": 2}, "start_step 2 is not between 0 and the plan's 1 steps"),
        ([0], {"rank": 0}, "it has no steps"),
    ],
)
def test_a_plan_that_ranks_could_not_follow_together_is_refused(offsets, fields, says):
    with pytest.raises(ValueError, match=says):
        PlanSampler(_plan(offsets, 2), **fields)


def test_a_plan_or_an_epoch_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"plan\.npz is not there; give a plan's file or the folder"):
        PlanSampler(tmp_path, 0)
    with pytest.raises(ValueError, match="epoch 1 is none of the plan's 1; tell PlanSampler its epochs"):
        PlanSampler(_plan([0, 2, 4], 2), 0).set_epoch(1)
