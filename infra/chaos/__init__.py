"""A table under injected faults: a schedule of kills, pauses, lost disks and moves from a seed, and final verifiers.

`nyala demo --chaos`, the soak and a process test run this one implementation.
"""

from .run import Chaos, ChaosOptions, Happened, Report, Show
from .schedule import MEMBERS, USUAL_DEMANDS, Event, Kind, Operation, Pace, aim, draw
from .show import perform
from .verify import Verdict
