"""Carries out one decision at a tablet's leader; the Spark query and the masters both host it."""

from .execute import execute
from .outcome import outcome_of
from .records import TOPICS, Fault, Unusable, read_record
