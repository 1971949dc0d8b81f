"""Certificates for tests: a cluster's CA made once, and credentials of which a block uses some."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from pathlib import Path

from nyala.replica.rpc import Credentials, credentials_of_process, load_credentials, speak_as
from nyala.replica.tools import init_ca, issue

CLUSTER = "test-cluster"


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="nyala-certificates-")


def authority(name: str = "ca", cluster: str = CLUSTER) -> Path:
    """The directory of a CA, made once; another `name`: another one."""
    directory = Path(_folder().name) / name
    if not directory.exists():
        init_ca(directory, cluster)
    return directory


def directory_for(
    role: str, name: str, ca: str = "ca", cluster: str = CLUSTER, days: float = 30, begin: datetime | None = None
) -> Path:
    """The directory of the credentials of one holder, made once."""
    directory = Path(_folder().name) / f"{ca}-{role}-{name}-{cluster}-{days}-{begin and begin.timestamp()}"
    if not directory.exists():
        issue(authority(ca, cluster), role, name, directory, days=days, begin=begin)
    return directory


def credentials_for(role: str, name: str) -> Credentials:
    """The credentials of one holder in the test's cluster."""
    return load_credentials(directory_for(role, name))


@contextmanager
def speaking_as(credentials: Credentials | None) -> Iterator[None]:
    """What the block connects, and each part that it makes, has these credentials; None: none."""
    before = credentials_of_process()
    speak_as(credentials)
    try:
        yield
    finally:
        speak_as(before)
