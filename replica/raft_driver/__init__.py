"""One replica of one tablet: carries out what the Raft core asks for, in the right order. No asyncio, no gRPC."""

from .absent import absent_reply
from .environment import Environment, Files
from .log_cache import LogCache
from .options import DriverOptions
from .replica import Replica
from .state_machine import RunHeavy, StateMachine
from .status import PeerStatus, Phase, ReplicaStatus

__all__ = [
    "DriverOptions",
    "Environment",
    "Files",
    "LogCache",
    "PeerStatus",
    "Phase",
    "Replica",
    "ReplicaStatus",
    "RunHeavy",
    "StateMachine",
    "absent_reply",
]
