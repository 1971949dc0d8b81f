"""Generations of a group: blocks of terms, one block for each time that a config was forced upon it.

After a majority was lost for good, it is not known which terms and entries the lost members had. A forced config
therefore begins in a block of terms that their elections cannot have reached: they would need four thousand million.
Members of two generations do not talk to each other, as if they were in two groups of one name.
"""

from __future__ import annotations

_TERMS_BITS = 32


def generation_of(term: int) -> int:
    """Return the generation that a term belongs to; 0 for a group whose config was never forced."""
    return term >> _TERMS_BITS


def next_generation(term: int) -> int:
    """Return the first term of the generation after that of `term`: above every term that an election led to from
    there."""
    return (generation_of(term) + 1) << _TERMS_BITS


def offset_in_generation(term: int) -> int:
    """Return how many terms of its generation lie below a term. At the last one no election can follow."""
    return term & ((1 << _TERMS_BITS) - 1)
