"""What gRPC logs of event loops that earlier tests have closed."""

from __future__ import annotations

import logging


def is_news(record: logging.LogRecord) -> bool:
    """[logging.Logger.addFilter] False for an event of gRPC that came when the loop of its call was closed.

    All loops of a process share one queue of such events. Whichever loop runs when one comes logs that its own is
    closed: then a line of an earlier test's connection would stand among those of a later test.
    """
    error = record.exc_info[1] if record.exc_info else None
    closed = isinstance(error, RuntimeError) and str(error) == "Event loop is closed"
    return not (closed and "PollerCompletionQueue._handle_events" in record.getMessage())
