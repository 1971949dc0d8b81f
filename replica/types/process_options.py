"""The options that servers and masters share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from .errors import check
from .options import Option

LOG_FILE_BYTES_MIN = 640 << 10
"""No line is longer: `logs.py` cuts its texts."""


@dataclass(frozen=True, kw_only=True)
class ProcessOptions:
    """The options of every process that listens: its certificate, its HTTP page and its logs.

    Stable: tls, insecure, metrics_port. Experimental: everything else.
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
    log_format: Annotated[
        str, Option("form of the lines of logs: text, or json, one object a line", choices=("text", "json"))
    ] = "text"
    log_level: Annotated[
        str,
        Option("records below this level are not logged", choices=("debug", "info", "warning", "error", "critical")),
    ] = "info"
    log_file: Annotated[str, Option("file of the logs, in a directory that exists; empty: standard error")] = ""
    log_file_bytes: Annotated[int, Option("a log file is renamed to NAME.1 before it is longer; at least 655360")] = (
        64 << 20
    )
    log_files: Annotated[int, Option("log files that are kept, with the current one; at least 2")] = 8
    """With the default length, 512 MiB: weeks of a process that logs some hundred lines a minute."""

    def __post_init__(self) -> None:
        length = self.log_file_bytes
        check(
            length >= LOG_FILE_BYTES_MIN,
            "a log file holds the longest line",
            log_file_bytes=length,
            least=LOG_FILE_BYTES_MIN,
        )
        check(
            2 <= self.log_files <= 1000,
            "one file is written while the others are kept, 2 to 1,000",
            log_files=self.log_files,
        )
