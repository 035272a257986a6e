"""The variance of a batch's mean gradient: by formula, and by drawing batches with our own stages.

Strata c with share p_c of the corpus, mean mu_c and within-variance s_c^2 (summed over dimensions), k of
them, batch B:

    random                       ( sum p_c s_c^2 + sum p_c |mu_c - mu|^2 ) / B
    proportional strata            sum p_c s_c^2 / B
    equal strata with weights    k sum p_c^2 s_c^2 / B          (balanced selection, cluster per rank)
    Neyman (b_c ~ p_c s_c)       ( sum p_c s_c )^2 / B          (the optimum)

The formulas are for draws with replacement. Ours are without, which takes a share of a batch in its
stratum off each; both are checked, the exact expectation more closely.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_bench.allocation import ALLOCATORS
from cluster_bench.artifacts import Allocation, Clusters, Selection, Tokens
from cluster_bench.selection import SELECTORS

BATCHES = 100  # a corpus is so many batches
PROPORTIONAL = np.array([12, 6, 3, 3])  # rows of each stratum in a batch of 24
EQUAL = np.array([6, 6, 6, 6])
NEYMAN = np.array([8, 4, 4, 8])  # as p_c s_c is 4 : 2 : 2 : 4
SPREADS = np.array([1.0, 1.0, 2.0, 4.0])
SIZES = PROPORTIONAL * BATCHES
SHARES = SIZES / SIZES.sum()
K, BATCH, DIM = len(SIZES), PROPORTIONAL.sum(), 24
DRAWS = 1000
NEAR = 0.04  # over 4 standard errors of a mean of 1,000 squared norms in 24 dimensions, sqrt(2 / 24 / 1000)
LIKE = {"ratio": EQUAL[0] / SIZES.min(), "keep": "random"}  # a batch of as many rows of each stratum


def corpus(labels, gradients):
    """The artefacts of rows whose clusters are given and whose features are their gradients."""
    n = len(labels)
    centers = np.stack([gradients[labels == c].mean(0) for c in range(labels.max() + 1)]).astype(np.float32)
    gap = ((gradients - centers[labels]) ** 2).sum(1).astype(np.float32)
    starts = 10 * np.arange(n + 1)
    tokens = Tokens(np.zeros(10 * n, dtype=np.int32), starts, starts[:-1] + 1, np.arange(n), [])
    return tokens, Clusters(labels, centers, gap, np.zeros(n, dtype=np.bool_), 0.0)


@pytest.fixture(scope="module")
def strata():
    rng = np.random.default_rng(7)
    labels = rng.permutation(np.repeat(np.arange(K), SIZES))
    means = rng.normal(0, 0.25, (K, DIM))
    gradients = means[labels] + SPREADS[labels][:, None] * rng.normal(size=(len(labels), DIM)) / np.sqrt(DIM)
    return gradients, *corpus(labels, gradients)


@pytest.fixture(scope="module")
def within(strata):
    """Variance inside each stratum."""
    gradients, _, clusters = strata
    return np.array([gradients[clusters.labels == c].var(0, ddof=1).sum() for c in range(K)])


def draw(strata, select, allocate) -> Allocation:
    """Run a selector and an allocator on the strata."""
    _, tokens, clusters = strata
    return allocate(tokens, clusters, select(tokens, clusters))


def estimate(gradients, plan, rank=None):
    """The weighted mean gradient of a plan's rows, or of one rank's."""
    here = slice(None) if rank is None else plan.rank == rank
    return plan.weight[here] @ gradients[plan.rows[here]] / len(plan.rows[here])


def variance(strata, estimates):
    """Mean squared distance to what the whole corpus says."""
    return ((np.stack(estimates) - strata[0].mean(0)) ** 2).sum(1).mean()


def exact(within, rows):
    """The variance of a weighted batch with so many rows of each stratum, drawn without replacement."""
    return (SHARES**2 * within / rows * (1 - rows / SIZES)).sum()


def test_random_batches_carry_within_and_between_variance(strata, within):
    gradients, _, clusters = strata
    between = (SHARES * ((clusters.centers - gradients.mean(0)) ** 2).sum(1)).sum()
    estimates = [
        estimate(
            gradients,
            draw(
                strata,
                SELECTORS["random"](match="rows", **LIKE, seed=seed),
                ALLOCATORS["shuffled"](ranks=K, weighted=False, seed=seed),
            ),
        )
        for seed in range(DRAWS)
    ]
    expected = gradients.var(0, ddof=1).sum() / BATCH * (1 - 1 / BATCHES)
    assert variance(strata, estimates) == pytest.approx(expected, rel=NEAR)
    assert ((SHARES * within).sum() + between) / BATCH == pytest.approx(expected, rel=0.02)


def test_proportional_batches_carry_within_variance_alone(strata, within):
    """Full data dealt so that every rank has its share of every stratum: a rank's rows are such a batch."""
    estimates = []
    for seed in range(DRAWS // BATCHES + 1):
        plan = draw(strata, SELECTORS["all"](), ALLOCATORS["stratified_shuffled"](ranks=BATCHES, seed=seed))
        estimates += [estimate(strata[0], plan, rank) for rank in range(BATCHES)]
    assert variance(strata, estimates) == pytest.approx(exact(within, PROPORTIONAL), rel=NEAR)
    assert (SHARES * within).sum() / BATCH == pytest.approx(exact(within, PROPORTIONAL), rel=0.02)


def test_equal_batches_with_weights_carry_the_squared_shares(strata, within):
    estimates = [
        np.mean([estimate(strata[0], plan, rank) for rank in range(K)], axis=0)  # the all-reduce
        for plan in (
            draw(strata, SELECTORS["balanced"](**LIKE, seed=seed), ALLOCATORS["cluster_per_rank"](ranks=K))
            for seed in range(DRAWS)
        )
    ]
    assert variance(strata, estimates) == pytest.approx(exact(within, EQUAL), rel=NEAR)
    assert K * (SHARES**2 * within).sum() / BATCH == pytest.approx(exact(within, EQUAL), rel=0.03)


def test_neyman_batches_carry_the_squared_sum(strata, within):
    gradients, _, clusters = strata
    members = [np.flatnonzero(clusters.labels == c) for c in range(K)]
    rng = np.random.default_rng(3)
    estimates = []
    for _ in range(DRAWS):
        rows = np.concatenate([rng.choice(m, b, replace=False) for m, b in zip(members, NEYMAN, strict=True)])
        chosen = Selection(np.sort(rows), uses_features=True)
        plan = draw(strata, lambda *_, chosen=chosen: chosen, ALLOCATORS["cluster_per_rank"](ranks=K))
        estimates.append(estimate(gradients, plan))
    assert variance(strata, estimates) == pytest.approx(exact(within, NEYMAN), rel=NEAR)
    assert (SHARES * np.sqrt(within)).sum() ** 2 / BATCH == pytest.approx(exact(within, NEYMAN), rel=0.03)


def test_equal_batches_without_weights_miss_the_corpus(strata):
    """The ablation: the mean of strata, not of rows, however many batches are averaged."""
    gradients, _, clusters = strata
    estimates = {
        weighted: np.mean(
            [
                estimate(
                    gradients,
                    draw(
                        strata,
                        SELECTORS["balanced"](**LIKE, seed=seed),
                        ALLOCATORS["cluster_per_rank"](ranks=K, weighted=weighted),
                    ),
                )
                for seed in range(DRAWS // 5)
            ],
            axis=0,
        )
        for weighted in (True, False)
    }
    off = np.linalg.norm(clusters.centers.mean(0) - gradients.mean(0))
    bias = {weighted: np.linalg.norm(mean - gradients.mean(0)) for weighted, mean in estimates.items()}
    assert bias[False] == pytest.approx(off, rel=0.1)
    assert bias[True] < off / 10


def test_weights_restore_shares_but_not_the_mean_of_peripheral_rows():
    """In skewed strata the farthest rows have another mean, which no weight per cluster puts right."""
    rng = np.random.default_rng(5)
    labels = np.repeat([0, 1], [600, 200])
    gradients = rng.exponential(1.0, (800, 1)) + 10 * labels[:, None]
    skewed = (gradients, *corpus(labels, gradients))
    spread = np.array([gradients[labels == c].std(ddof=1) for c in (0, 1)])
    noise = np.sqrt((np.array([0.75, 0.25]) ** 2 * spread**2 / 100).sum())  # of 100 random rows of each
    off = {}
    for keep in ("far", "random"):
        plan = draw(
            skewed,
            SELECTORS["balanced"](ratio=0.5, keep=keep, seed=0),
            ALLOCATORS["cluster_per_rank"](ranks=2),
        )
        assert plan.weight[labels[plan.rows] == 0].sum() / plan.weight.sum() == pytest.approx(0.75)
        off[keep] = estimate(gradients, plan)[0] - gradients.mean()
    assert abs(off["random"]) < 3 * noise
    assert off["far"] > 10 * noise


shares = st.lists(st.floats(0.01, 1), min_size=2, max_size=10).map(lambda p: np.array(p) / np.sum(p))


@given(shares, st.data())
def test_equal_strata_cost_at_most_alpha_times_proportional(p, data):
    """So they beat random where the between-variance exceeds (alpha - 1) times the within-variance."""
    k = len(p)
    s = np.array(data.draw(st.lists(st.floats(0.01, 10), min_size=k, max_size=k)))
    between = data.draw(st.floats(0, 10))
    alpha = k * p.max()  # the cap that these strata meet
    equal, proportional, neyman = k * (p**2 * s**2).sum(), (p * s**2).sum(), (p * s).sum() ** 2
    slack = 1 + 1e-9
    assert equal <= alpha * proportional * slack
    assert neyman <= min(equal, proportional) * slack
    if between > (alpha - 1) * proportional:
        assert equal <= (proportional + between) * slack
