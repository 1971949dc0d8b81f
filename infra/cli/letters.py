"""`nyala dead-letter ...`: records that did not become rows."""

from __future__ import annotations

import base64
from typing import Annotated, Any

import typer

from nyala.pipeline import Letter, read_letters, replay_letters

from .context import Json, console, kafka_of, print_json, print_table

app = typer.Typer(help="records that did not become rows", no_args_is_help=True)
Kafka = Annotated[str, typer.Option("--kafka", envvar="NYALA_KAFKA", help="host:port; default: the stack in ./.nyala")]
Reason = Annotated[str, typer.Option(help="only letters with this reason, such as KEY_MISMATCH")]


def _chosen(kafka: str, table: str, reason: str) -> list[Letter]:
    letters = read_letters(kafka_of(kafka), table)
    return [one for one in letters if not reason or one.record["reason"] == reason.upper()]


def _shown(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


@app.command("list")
def list_letters(
    table: str,
    reason: Reason = "",
    limit: Annotated[int, typer.Option(help="letters to show; 0 is all")] = 50,
    kafka: Kafka = "",
    as_json: Json = False,
) -> None:
    """List a table's dead letters, each record once. With --json keys and values are base64."""
    letters = _chosen(kafka, table, reason)
    if as_json:
        print_json([{k: _shown(v) for k, v in one.record.items()} for one in letters])
        return
    shown = letters[:limit] if limit else letters
    rows = [
        (
            one.place,
            one.record["reason"],
            one.record["column"],
            len(one.record["value"] or b""),
            (one.record["value"] or b"")[:24].hex(" "),
        )
        for one in shown
    ]
    print_table(f"dead letters of {table}", ("record", "reason", "column", "bytes", "begins"), rows)
    if len(shown) < len(letters):
        console.print(f"{len(shown)} of {len(letters)}; --limit 0 shows all")


@app.command()
def replay(
    table: str,
    reason: Reason = "",
    to: Annotated[str, typer.Option(help="publish to this topic instead of the one each record came from")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    kafka: Kafka = "",
) -> None:
    """Publish dead letters' records again, after what was wrong with them was mended."""
    letters = _chosen(kafka, table, reason)
    if not letters:
        typer.echo("no such dead letters")
        return
    if not yes and not typer.confirm(f"publish {len(letters)} records again to {to or letters[0].record['topic']}?"):
        typer.echo("nothing was published", err=True)
        raise typer.Exit(1)
    typer.echo(f"published {replay_letters(kafka_of(kafka), letters, to)} records")
