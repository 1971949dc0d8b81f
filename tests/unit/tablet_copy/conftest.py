"""Disks that a test made are closed when it ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.copies import close_disks


@pytest.fixture(autouse=True)
def closed_disks() -> Iterator[None]:
    """Close every disk of `new_disk` after the test."""
    yield
    close_disks()
