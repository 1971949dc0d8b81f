"""The state of a stack in its folder, for other processes: `state.json`, and whether its supervisor is alive."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

PORT_MAX = 65535


class StackError(RuntimeError):
    """The stack did not start, or a call to it failed; the text has the problem and the place of the log."""


def read_state(folder: Path) -> dict[str, Any] | None:
    """The state of the stack in `folder`, or None if there never was one; StackError if it cannot be read."""
    path = folder / "state.json"
    try:
        state = json.loads(path.read_text())
        if not isinstance(state, dict) or not isinstance(state.get("addresses", {}), dict):
            raise ValueError("no state of a stack")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StackError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise StackError(
            f"{path} is damaged ({error}). If a stack runs there, end its supervisor, `python -m nyala.infra.local`; "
            "then remove the file and start again: nothing is lost by that"
        ) from error
    return state


def earlier_addresses(folder: Path) -> dict[str, str]:
    """Child's name -> the host:port that it had in the last run of the stack; without a state, from the children's
    notes.

    If all servers came back at other addresses, they could not find each other.
    """
    found = {}
    for path in sorted(folder.glob("*.ready")):
        try:
            found[path.stem] = str(json.loads(path.read_text())["address"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    found |= {str(name): str(address) for name, address in (read_state(folder) or {}).get("addresses", {}).items()}
    return {name: address for name, address in found.items() if _is_address(address)}


def is_running(state: dict[str, Any] | None) -> bool:
    """Whether the supervisor that wrote this state is alive."""
    if not state or not state.get("running"):
        return False
    try:
        command = Path(f"/proc/{state['pid']}/cmdline").read_bytes() if Path("/proc").is_dir() else b"nyala"
        os.kill(int(state["pid"]), 0)
    except (OSError, ValueError, KeyError):
        return False
    return b"nyala" in command or b"python" in command


def _is_address(text: str) -> bool:
    return bool(re.fullmatch(r"[^:]+:[0-9]{1,5}", text)) and int(text.rpartition(":")[2]) <= PORT_MAX
