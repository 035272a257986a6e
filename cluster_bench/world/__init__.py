"""The toy world: what its rows, benchmarks and base models are about, written here from a seed.

A *skill* is what a row teaches: a named program (`programs`), a medical fact or the reading of a
finding (`medicine`). A *story* (`stories`) is how a row is dressed; it says nothing about the skill.
`rows` puts both together into long-tailed corpora with the flaws of real ones, `tokenizer` learns the
vocabulary. Skills and tokenizer depend on `WORLD_SEED` alone, so all corpora, benchmarks and models meet.
"""

WORLD_SEED = 2609
"""Fixes the skills and the tokenizer; rows, items and weights have seeds of their own."""
