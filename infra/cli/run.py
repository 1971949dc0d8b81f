"""`nyala server run` and `nyala master run`: the process of this command becomes a tablet server or a master."""

from __future__ import annotations

import os
import sys

import typer


def run_server(context: typer.Context) -> None:
    """Run a tablet server in this process, until SIGTERM or SIGINT; `nyala server run -- --help` shows its options.

    `--config FILE` names a file of options; `--print-config` prints one with all of them.
    """
    _become("nyala.replica.server", context.args)


def run_master(context: typer.Context) -> None:
    """Run a master in this process, until SIGTERM or SIGINT; `nyala master run -- --help` shows its options.

    `--config FILE` names a file of options; `--print-config` prints one with all of them.
    """
    _become("nyala.replica.master", context.args)


def _become(module: str, arguments: list[str]) -> None:
    """Replace this program by another one, so that none of this command's libraries stays in its memory, and signals of
    a service manager reach it. `-P`: a folder `nyala` in the working directory is not taken for the package."""
    os.execv(sys.executable, [sys.executable, "-P", "-m", module, *arguments])
