"""A server or a master of the build after this one, which knows one feature level more and is otherwise the same.

Run as `python -m tests.harness.next_server`, or `next_master`, with the arguments of a server or of a master.
"""

from __future__ import annotations

from nyala.schemas import build_level, feature_level

NEXT = build_level() + 1


def become() -> None:
    """Make this process one of the next build."""
    feature_level.FEATURE_LEVEL = NEXT
