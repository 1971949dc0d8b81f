"""`nyala security init | issue | list`: the cluster's certificate authority (CA) and its certificates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nyala.replica import tools

from .context import Json, say, show_list

app = typer.Typer(help="certificates of servers, masters, clients and operators", no_args_is_help=True)

Authority = Annotated[Path, typer.Argument(metavar="DIR", help="directory of the CA; keep it on one machine, offline")]
_HEADINGS = ("role", "uuid or user", "state", "not before", "not after", "serial")


@app.command("init")
def init(
    directory: Authority,
    cluster: Annotated[str, typer.Option(help="name of the cluster in all its certificates; default: a new id")] = "",
    as_json: Json = False,
) -> None:
    """Make the CA of a new cluster in an empty directory. Who has its key can make certificates of the cluster."""
    made = tools.init_ca(directory, cluster)
    text = f"made the CA of cluster {made} in {directory}: keep {directory / 'ca.key'} secret, and have a backup of it"
    say(as_json, {"cluster": made, "directory": str(directory)}, text)


@app.command("issue")
def issue(
    directory: Authority,
    role: Annotated[str, typer.Argument(help="server, master, client or operator")],
    out: Annotated[Path, typer.Argument(help="a new directory, for --tls, tls= and NYALA_TLS")],
    name: Annotated[
        str, typer.Option(help="the user of a client or operator; the uuid of a server or master, by default a new one")
    ] = "",
    days: Annotated[float, typer.Option(help="how long it is valid")] = 365,
    as_json: Json = False,
) -> None:
    """Make a key and a certificate for one server, master, client or operator.

    A client reads and writes rows, and makes and drops tables. An operator may also move replicas, and stop and change
    servers and masters.
    A server or master that starts with it on an empty directory takes its uuid. For a directory that exists, give the
    uuid that `nyala fs uuid` prints.
    """
    made = tools.issue(directory, role, name, out, days=days)
    document = {"role": role, "name": made.named.name, "serial": made.serial, "not_after": made.not_after.isoformat()}
    say(as_json, document, f"issued {made.named}, valid until {made.not_after:%Y-%m-%d}: {out}")


@app.command("list")
def list_issued(directory: Authority, as_json: Json = False) -> None:
    """List all certificates that the CA issued; the one that expires first comes first."""
    rows = [
        (i.named.role, i.named.name, i.state, f"{i.not_before:%Y-%m-%d}", f"{i.not_after:%Y-%m-%d}", i.serial)
        for i in tools.issued(directory)
    ]
    document = [
        dict(zip(("role", "name", "state", "not_before", "not_after", "serial"), row, strict=True)) for row in rows
    ]
    show_list(as_json, document, "certificates", _HEADINGS, rows, ("serial", "not before"))
