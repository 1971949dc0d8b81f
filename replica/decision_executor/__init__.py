"""Carries out decisions at the tablets' leaders; the Spark query and the masters both host it."""

from .execute import execute
from .executor import DecisionExecutor, carry_out_all
from .outcome import outcome_of
from .records import TOPICS, Fault, Unusable, read_record
from .schedule import Bounds, target_of
