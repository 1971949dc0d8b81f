"""`nyala cmeta rewrite | set-term`: consensus metadata of a stopped server, changed by hand.

The earlier file is kept under `undo/`. After a rewrite it cannot be put back, because the forced config stays in the
log, too.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from nyala.replica import tools
from nyala.replica.types import Address, Member, is_uuid

from .context import Json, Yes, ask, print_json, print_table
from .offline import Root, Tablet, changeable, members_text

DryRun = Annotated[bool, typer.Option("--dry-run", help="print what would be, change nothing")]


def _member(text: str) -> Member:
    """The member of UUID=HOST:PORT, with `:non-voter` after it for a member that does not vote."""
    rest, votes = text.removesuffix(":non-voter"), not text.endswith(":non-voter")
    uuid, _, address = rest.partition("=")
    if not is_uuid(uuid):
        raise typer.BadParameter(f"--peer {text!r}: a peer is UUID=HOST:PORT[:non-voter], a uuid 32 hexadecimal digits")
    try:
        return Member(uuid, (Address.given(address),), votes=votes)
    except ValueError as error:
        raise typer.BadParameter(f"--peer {text!r}: {error}") from None


def _need_names(members: Sequence[Member]) -> None:
    """Check that every master's name in the config can be resolved, from this machine, too."""
    for member in members:
        for address in member.addresses:
            try:
                socket.getaddrinfo(address.host.strip("[]"), address.port)
            except OSError as error:
                what = f"{address.host} does not resolve here ({error}): give each master its name first"
                raise typer.BadParameter(f"--peer {member.uuid}={address}: {what}; nothing was changed") from None


def rewrite(
    root: Root,
    tablet: Tablet,
    peer: Annotated[list[str], typer.Option(help="UUID=HOST:PORT[:non-voter]; once for each member of the new config")],
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Force a config upon one replica of a stopped server: in its log and its consensus metadata.

    Unsafe: everything in this replica's log counts as committed, and whoever is not named is given up. All other
    members must be copied from this replica; `nyala unsafe recover` does that, for many tablets, from the best one.
    There is no way back: the earlier metadata are kept, but the log keeps the forced config, too.
    When the server runs again, `nyala unsafe confirm-config` tells the masters of a tablet's forced config.
    """
    members = tuple(_member(text) for text in peer)
    if len({m.uuid for m in members}) != len(members):
        raise typer.BadParameter("--peer names a member twice")
    if tablet == tools.CATALOG_ID:
        _need_names(members)
    with changeable(root) as disk:
        if not any(m.uuid == tools.identity(disk).uuid for m in members):
            raise typer.BadParameter(f"--peer leaves out the server of {root} itself, {tools.identity(disk).uuid}")
        planned = tools.rewrite_config(disk, tablet, members, dry_run=True)
        question = f"force this config upon {tablet}? Who is not named is given up, with all that only they have."
        if not _goes_ahead(planned, question, dry_run=dry_run, yes=yes, as_json=as_json):
            return
        done = tools.rewrite_config(disk, tablet, members)
    _show(done, as_json, changed=True)


def set_term(
    root: Root,
    tablet: Tablet,
    term: Annotated[int, typer.Argument(min=0, help="the new term, not below the present one")],
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Make a stopped server's replica enter a higher term, in which it has not voted. Never a lower one.

    Its group follows it there at its next start: terms that are skipped never come again.
    """
    with changeable(root) as disk:
        planned = tools.raise_term(disk, tablet, term, dry_run=True)
        question = f"raise {tablet} from term {planned.before.term} to {term}? There is no way back."
        if not _goes_ahead(planned, question, dry_run=dry_run, yes=yes, as_json=as_json):
            return
        done = tools.raise_term(disk, tablet, term)
    _show(done, as_json, changed=True)


def _goes_ahead(planned: tools.Rewritten, question: str, *, dry_run: bool, yes: bool, as_json: bool) -> bool:
    """Show what would change, if that was requested or a terminal is attached; then ask."""
    idle = dry_run or planned.before == planned.after
    if idle or not as_json:
        _show(planned, as_json, changed=False)
    if not idle:
        ask(question, yes)
    return not idle


def _show(done: tools.Rewritten, as_json: bool, *, changed: bool) -> None:
    if as_json:
        from nyala.replica.consensus_metadata import cmeta_json

        document: dict[str, Any] = {
            "changed": changed,
            "before": cmeta_json(done.before),
            "after": cmeta_json(done.after),
            "undo": done.undo,
        }
        print_json(document)
        return
    before, after = done.before, done.after

    rows = [
        ("term", before.term, after.term),
        ("vote", before.voted_for or "-", after.voted_for or "-"),
        ("config", before.config.opid, after.config.opid),
        ("members", members_text(before.config), members_text(after.config)),
    ]
    print_table(f"consensus metadata of {before.tablet_id}", ("", "before", "after"), rows)
    if changed:
        typer.echo(f"written; the earlier file is kept as {done.undo}")
    elif before == after:
        typer.echo("it is so already: nothing was changed")
