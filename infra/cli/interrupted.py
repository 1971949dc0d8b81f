"""What a command says that Ctrl-C ends: whether anything may have been applied, and which command shows it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class NothingSent(KeyboardInterrupt):
    """The interruption came before the command had sent a request."""


@contextmanager
def before_sending() -> Iterator[None]:
    """A context in which a command loads libraries and connects, and asks for no change yet."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise NothingSent from stop


LOOK = {
    "up": "nyala status",
    "down": "nyala status",
    "demo": "nyala status --dir FOLDER",
    "job": "nyala source list",
    "bench": "nyala table list",
    "table create": "nyala table list",
    "table drop": "nyala table list",
    "table set-replication": "nyala tablet list",
    "topic create": "nyala source list",
    "schema register": "nyala schema list TABLE",
    "schema forget": "nyala schema list TABLE",
    "tablet leader-step-down": "nyala tablet list",
    "tablet move": "nyala tablet list",
    "tablet change-config": "nyala tablet list",
    "tablet unsafe-recover": "nyala local-replica list DIRECTORY",
    "tablet unsafe-replace": "nyala tablet list",
    "server retire": "nyala server list",
    "server unretire": "nyala server list",
    "server enter-maintenance": "nyala server list",
    "server exit-maintenance": "nyala server list",
    "server forget": "nyala server list",
    "server prepare-restart": "nyala server list",
    "server quiesce start": "nyala server list",
    "server quiesce stop": "nyala server list",
    "master add": "nyala master list",
    "master remove": "nyala master list",
    "master replace": "nyala master list",
    "master unsafe-rebuild": "nyala local-replica list DIRECTORY",
    "master copy-from": "nyala local-replica list DIRECTORY",
    "upgrade finalize": "nyala upgrade status",
    "copy start": "nyala copy list",
    "copy cancel": "nyala copy list",
    "source release": "nyala source list",
    "source reset": "nyala source list",
    "dead-letter replay": "nyala source list",
    "quarantine purge": "nyala quarantine list",
    "fs format": "nyala fs check DIRECTORY",
    "security init": "nyala security list DIR",
    "security issue": "nyala security list DIR",
    "fs check": "nyala fs check DIRECTORY",
    "fs wipe": "nyala fs check DIRECTORY",
    "local-replica delete": "nyala local-replica list DIRECTORY",
    "local-replica copy-from": "nyala local-replica list DIRECTORY",
    "cmeta rewrite": "nyala cmeta print DIRECTORY",
    "cmeta set-term": "nyala cmeta print DIRECTORY",
    "unsafe recover": "nyala local-replica list DIRECTORY",
    "unsafe replace": "nyala tablet list",
    "unsafe confirm-config": "nyala cluster check",
}
"""Command, or the beginning of several, that changes something -> the command that shows what came of it."""


def words(command: str, stop: BaseException) -> str:
    """Return the line for a command such as `table create` that this interruption ended."""
    if isinstance(stop, NothingSent):
        return "nyala: interrupted: nothing was sent"
    if not changes(command):
        return "nyala: interrupted: nothing was changed"
    return f"nyala: interrupted: what was asked for may have been applied; `{_look(command)}` shows it"


def changes(command: str) -> bool:
    """Whether a command such as `table create` changes anything."""
    return bool(_look(command))


def _look(command: str) -> str:
    parts = command.split()
    return next((LOOK[name] for n in (1, 2, 3) if (name := " ".join(parts[:n])) in LOOK), "")
