"""Calls to a supervisor in another process: one JSON line each way over loopback, with a token from state.json."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .state import StackError, is_running, read_state
from .supervisor import START_WAIT_S, StackOptions, Supervisor, make_folder, prepare

CALL_WAIT_S = START_WAIT_S + 60.0
"""The time-out of a call: longer than the requested work may take, so that the caller gets the supervisor's answer."""
DETACH_WAIT_S = START_WAIT_S + 60.0


def serve(supervisor: Supervisor) -> Callable[[], None]:
    """Answer calls for `supervisor` on a loopback port noted in its state.json; returns a function that ends it."""
    token = secrets.token_hex(16)
    actions: dict[str, Callable[..., Any]] = {
        "status": supervisor.status,
        "add_server": supervisor.add_server,
        "kill": supervisor.kill,
        "stop_child": supervisor.stop_child,
        "start_child": supervisor.start_child,
    }

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            try:
                request = json.loads(self.rfile.readline(65536))
                if not secrets.compare_digest(str(request.get("token", "")), token):
                    raise StackError("wrong token: read it from the stack's state.json")
                reply = {"result": actions[request["action"]](**request.get("arguments", {}))}
            except Exception as error:  # noqa: BLE001 - the caller gets the text
                reply = {"error": f"{error}" or type(error).__name__}
            self.wfile.write(json.dumps(reply).encode() + b"\n")

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="nyala-control", daemon=True).start()
    supervisor.note(control_port=server.server_address[1], token=token)

    def end() -> None:
        server.shutdown()
        server.server_close()

    return end


def call(folder: Path, action: str, **arguments: Any) -> Any:
    """Call the running supervisor of `folder`; StackError if there is none or it refuses."""
    state = read_state(folder)
    if state is None or not is_running(state):
        raise StackError(f"no stack runs in {folder}: start one with `nyala up`")
    request = {"token": state.get("token"), "action": action, "arguments": arguments}
    with socket.create_connection(("127.0.0.1", int(state["control_port"])), timeout=CALL_WAIT_S) as link:
        link.sendall(json.dumps(request).encode() + b"\n")
        with link.makefile("rb") as lines:
            reply = json.loads(lines.readline())
    if "error" in reply:
        raise StackError(reply["error"])
    return reply["result"]


def start_detached(
    folder: Path, options: StackOptions, progress: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Start a supervisor in its own session and wait until everything is ready; returns its state."""
    read_state(folder)
    prepare(options, progress)
    progress("starting the stack")
    make_folder(folder)
    log = folder / "logs" / "supervisor.log"
    with log.open("ab") as out:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "nyala.infra.local",
                "--folder",
                str(folder),
                "--options",
                json.dumps(vars(options)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + DETACH_WAIT_S
    while time.monotonic() < deadline:
        state = read_state(folder)
        if state and state.get("pid") == process.pid and state.get("control_port") and state.get("running"):
            return state
        if process.poll() is not None:
            lines = log.read_text(errors="replace").splitlines()
            raise StackError(lines[-1] if lines else f"the supervisor ended with status {process.returncode}")
        time.sleep(0.05)
    process.terminate()
    raise StackError(f"the stack did not come up in {DETACH_WAIT_S:.0f} s; see {log}")


def stop(folder: Path) -> bool:
    """End the stack of `folder` and wait for it; False if none ran."""
    state = read_state(folder)
    if state is None or not is_running(state):
        return False
    pid = int(state["pid"])
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + CALL_WAIT_S
    while time.monotonic() < deadline:
        if not is_running(read_state(folder)):
            return True
        time.sleep(0.05)
    raise StackError(f"the supervisor, process {pid}, does not end; see {folder / 'logs'}")
