"""Tablet copies between processes: the source's service and connections, and the target's access to them."""

from .copy_rate import CopyRate
from .remote_source import RemoteCopySource
from .source_process import SourceReplica
from .source_service import SourceServicer
