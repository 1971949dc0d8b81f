"""Tablet copies between processes: the source's service and connections, and what a follower copies through."""

from .copy_rate import CopyRate
from .fetch_serving import FetchServing
from .hosting import CopyHost, SourceReplica
from .remote_source import RemoteCopySource
from .source_service import SourceServicer

__all__ = [
    "CopyHost",
    "CopyRate",
    "FetchServing",
    "RemoteCopySource",
    "SourceReplica",
    "SourceServicer",
]
