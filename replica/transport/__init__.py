"""Raft messages between servers: one link for each ordered pair, shared by all tablets."""

from .connection_quota import CLIENTS, ConnectionQuota
from .exporter import Exporter, call_families
from .frame_reader import Arrivals, FrameReader
from .health import Health, Liveness, ProbedServices, serve_health
from .listener import ConnectionHandler, GrantTicket, Listener, address_of
from .liveness import LivenessChange, PeerLiveness
from .microtasks import MicrotaskQueue
from .network import PeerNetwork
from .options import PeerOptions
from .peer import PeerStatus
from .sender_check import SenderCheck
from .servicer import PeerServicer
