"""The options that servers and masters share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from .options import Option


@dataclass(frozen=True, kw_only=True)
class ProcessOptions:
    """The options of every process that listens: its certificate and its HTTP page.

    Stable: tls, insecure, metrics_port. Experimental: metrics_host.
    """

    tls: Annotated[
        str,
        Option(
            "directory of this process's certificate, of `nyala security issue`; without it, all connections are open"
        ),
    ] = ""
    """The directory of this process's TLS credentials; empty: no TLS."""
    insecure: Annotated[bool, Option("listen beyond loopback without tls")] = False
    """Whether it may listen beyond loopback without TLS."""
    metrics_port: Annotated[
        int, Option("HTTP page: /metrics for Prometheus, /healthz, /readyz; 0 takes a free port, -1 serves none")
    ] = -1
    """The port of the HTTP page; 0: the kernel chooses a free one; -1: none."""
    metrics_host: Annotated[
        str, Option("address of that page, without TLS: 0.0.0.0 or :: shows it to all who reach this machine")
    ] = "127.0.0.1"
