"""Carries out one decision at a tablet's leader; the Spark query and the masters both host it."""

from .execute import Decision, execute
from .outcome import Outcome, Result, outcome_of
from .records import Fault, Unusable, read_record

__all__ = ["Decision", "Fault", "Outcome", "Result", "Unusable", "execute", "outcome_of", "read_record"]
