"""Carries out one decision at a tablet's leader; the Spark query and the masters both host it."""

from .execute import Decision, execute
from .outcome import Outcome, Result, outcome_of

__all__ = ["Decision", "Outcome", "Result", "execute", "outcome_of"]
