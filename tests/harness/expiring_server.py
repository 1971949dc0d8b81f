"""A tablet server whose copy sessions time out early on demand.

Run as `python -m tests.harness.expiring_server`, with a server's arguments. Of all such servers in one folder, the one
that opens the next session removes the file `expire` beside its own folder: that session counts as one that was not
used within its time to live. `expire_next` puts the file there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nyala.replica.server.__main__ import parse
from nyala.replica.server.process import main
from nyala.replica.tablet_copy import CopySourceSession, SourceSessions

TOKEN = "expire"


def expire_next(folder: Path) -> None:
    """Make the next copy session of all servers in `folder` time out."""
    (folder / TOKEN).touch()


def expires_next(folder: Path) -> bool:
    """Return whether that is still to come."""
    return (folder / TOKEN).exists()


def _expiring(folder: Path) -> None:
    open_session = SourceSessions.open

    def open_and_expire(
        sessions: SourceSessions,
        tablet_id: str,
        requestor_uuid: str,
        capture: Callable[[str, int], CopySourceSession],
        **asked: Any,
    ) -> CopySourceSession:
        session = open_session(sessions, tablet_id, requestor_uuid, capture, **asked)
        try:
            (folder / TOKEN).unlink()
        except FileNotFoundError:
            return session
        with sessions._lock:
            sessions._slots[session.manifest.session_id].asked_us -= 2 * sessions.ttl_us
        return session

    SourceSessions.open = open_and_expire  # type: ignore[method-assign]


if __name__ == "__main__":
    options = parse(sys.argv[1:])
    _expiring(Path(options.root).parent)
    sys.exit(main(options))
