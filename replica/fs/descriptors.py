"""How many files this process may have open: each tablet has a log, and each scan and copy has more."""

from __future__ import annotations

import resource

_ENOUGH = 1 << 20


def raise_open_files_limit() -> int:
    """Raise the soft limit as far as the hard one allows, within reason; returns the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft
