"""One replica of one tablet: carries out what the Raft core asks for, in the right order. No asyncio, no gRPC."""

from .absent import absent_reply
from .environment import Environment, Files
from .log_cache import LogCache
from .options import DriverOptions
from .replica import Replica
from .state_machine import StateMachine
from .status import Phase
