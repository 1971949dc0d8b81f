"""Drives one replica of one tablet: carries out each `Ready` of the Raft core in order. No asyncio, no gRPC."""

from .environment import Environment, Files
from .log_cache import LogCache
from .no_replica import no_replica_reply
from .options import DriverOptions
from .replica import Replica
from .state_machine import StateMachine
from .status import Phase
