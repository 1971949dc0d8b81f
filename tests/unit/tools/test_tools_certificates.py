"""The cluster's CA: what it writes, what it refuses, and what `nyala security` prints."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nyala.infra.cli.app import app
from nyala.replica.rpc import credentials_of_process, load_credentials, start_as
from nyala.replica.rpc.credentials import check_directory_uuid
from nyala.replica.tools import init_ca, issue, issued
from nyala.replica.types import Code, Refused
from tests.harness.certificates import credentials_for, directory_for, speaking_as


def nyala(*arguments: str) -> str:
    ran = CliRunner().invoke(app, ["security", *arguments], catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    return ran.output


def test_commands_make_a_ca_and_certificates_and_print_no_key(tmp_path: Path) -> None:
    """Goal: three commands give a cluster its certificates; only the owner may read the files, and no key is printed.
    Method: the commands; modes of all files; the output has no part of a key; what was issued is listed."""
    ca = str(tmp_path / "ca")
    said = nyala("init", ca, "--cluster", "paris")
    said += nyala("issue", ca, "server", str(tmp_path / "s"))
    said += nyala("issue", ca, "client", str(tmp_path / "c"), "--name", "anna", "--days", "2")
    said += nyala("issue", ca, "operator", str(tmp_path / "o"), "--name", "ops")
    found = json.loads(nyala("list", ca, "--json"))
    said += nyala("list", ca)
    assert tuple(found[0][field] for field in ("role", "name", "state")) == ("client", "anna", "ENDS SOON")
    own = load_credentials(tmp_path / "s").own
    assert (own.role, own.cluster) == ("server", "paris")
    assert {(one["role"], one["name"]) for one in found[1:]} == {("server", own.name), ("operator", "ops")}
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 14 and {path.stat().st_mode & 0o777 for path in files} == {0o600}
    secrets = [path.read_text().splitlines()[1] for path in files if path.suffix == ".key" or path.name == "key.pem"]
    assert len(secrets) == 4 and not any(secret in said for secret in secrets) and "PRIVATE" not in said


def test_ca_overwrites_nothing_and_refuses_what_it_cannot_name(tmp_path: Path) -> None:
    """Goal: no CA and no key is lost by a command, and no certificate names nobody. Method: each wrong argument; all
    files are as before."""
    init_ca(tmp_path / "ca", "paris")
    issue(tmp_path / "ca", "client", "anna", tmp_path / "c")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for call, code in (
        (lambda: init_ca(tmp_path / "ca"), Code.ALREADY_EXISTS),
        (lambda: init_ca(tmp_path / "new", "Paris!"), Code.INVALID_ARGUMENT),
        (lambda: issue(tmp_path / "ca", "client", "bob", tmp_path / "c"), Code.ALREADY_EXISTS),
        (lambda: issue(tmp_path / "ca", "client", "", tmp_path / "d"), Code.INVALID_ARGUMENT),
        (lambda: issue(tmp_path / "ca", "client", "a/b", tmp_path / "d"), Code.INVALID_ARGUMENT),
        (lambda: issue(tmp_path / "ca", "king", "bob", tmp_path / "d"), Code.INVALID_ARGUMENT),
        (lambda: issue(tmp_path / "ca", "client", "bob", tmp_path / "d", days=0), Code.INVALID_ARGUMENT),
        (lambda: issue(tmp_path / "none", "client", "bob", tmp_path / "d"), Code.NOT_FOUND),
    ):
        with pytest.raises(Refused) as refused:
            call()
        assert refused.value.code is code and "nothing was written" in str(refused.value)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert [one.named.name for one in issued(tmp_path / "ca")] == ["anna"]


def test_list_warns_of_certificates_that_end_soon(tmp_path: Path) -> None:
    """Goal: the list tells of a certificate's end early enough to renew it. Method: certificates that end in 13 and 15
    days, that ended yesterday, and that begin tomorrow."""
    init_ca(tmp_path / "ca", "paris")
    now = datetime.now(UTC)
    for name, days, begin in (("soon", 13, now), ("later", 15, now), ("past", 1, now - timedelta(days=2))):
        issue(tmp_path / "ca", "client", name, tmp_path / name, days=days, begin=begin)
    issue(tmp_path / "ca", "client", "future", tmp_path / "future", days=5, begin=now + timedelta(days=1))
    assert {one.named.name: one.state for one in issued(tmp_path / "ca")} == {
        "soon": "ENDS SOON", "later": "VALID", "past": "EXPIRED", "future": "NOT YET VALID",
    }  # fmt: skip


def test_credentials_that_are_not_valid_now_or_not_whole_are_refused_at_the_start(tmp_path: Path) -> None:
    """Goal: a process does not start with a certificate that no peer would accept. Method: one that has expired, one
    that is not valid yet, one without its key, one with another's key."""
    now = datetime.now(UTC)
    past = directory_for("server", "a" * 32, days=1, begin=now - timedelta(days=3))
    future = directory_for("server", "a" * 32, begin=now + timedelta(days=1))
    for name, source in (("keyless", ""), ("other", directory_for("server", "b" * 32) / "key.pem")):
        (tmp_path / name).mkdir()
        for file in ("ca.pem", "certificate.pem"):
            (tmp_path / name / file).write_bytes((directory_for("server", "a" * 32) / file).read_bytes())
        if source:
            (tmp_path / name / "key.pem").write_bytes(Path(source).read_bytes())
    for directory, told in (
        (past, "has expired on"),
        (future, "is valid only from"),
        (tmp_path / "keyless", "cannot be read"),
        (tmp_path / "other", "cannot be read"),
    ):
        with pytest.raises(Refused, match=told) as refused:
            load_credentials(directory)
        assert refused.value.code is Code.INVALID_ARGUMENT and str(directory)[:40] in str(refused.value)


def test_process_starts_only_with_its_own_certificate_or_where_nobody_else_reaches_it() -> None:
    """Goal: a server needs a server's certificate for its own directory; without TLS it listens on loopback only,
    unless it is told otherwise. Method: each combination; `localhost` and IPv6 too."""
    server, master = directory_for("server", "a" * 32), directory_for("master", "d" * 32)
    with speaking_as(None):
        for listen in ("127.0.0.1:0", "localhost:0", "[::1]:0", "127.1.2.3:0"):
            assert start_as("server", "", listen, False) == "" and credentials_of_process() is None
        for listen in ("0.0.0.0:0", "[::]:0", "10.1.2.3:7050", "storage-1:7050"):
            with pytest.raises(Refused, match="--insecure"):
                start_as("server", "", listen, False)
            assert start_as("master", "", listen, True) == ""
            assert start_as("server", str(server), listen, False) == "a" * 32
        with pytest.raises(Refused, match="needs a certificate for a server"):
            start_as("server", str(master), "127.0.0.1:0", False)
        check_directory_uuid("a" * 32)
        with pytest.raises(Refused, match="another uuid than the directory"):
            check_directory_uuid("b" * 32)


def test_key_is_in_no_text_of_credentials() -> None:
    """Goal: no log or error shows a key. Method: all texts of an object, with a key whose text is known."""
    found = credentials_for("client", "anna")
    key = (directory_for("client", "anna") / "key.pem").read_text().splitlines()[1]
    assert key not in repr(found) + str(found)
