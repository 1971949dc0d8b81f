"""Options of servers and masters: one definition, read from flags, the environment and a file."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from nyala.replica.master.__main__ import parse as parse_master
from nyala.replica.master.options import MasterOptions
from nyala.replica.server.__main__ import parse as parse_server
from nyala.replica.server.options import ServerOptions
from nyala.replica.types.options import CONFIG_BYTES_MAX, config_text, read_file, table_of
from tests.harness.documents import blocks, pages_of_users
from tests.tidy.test_layers import ROOT

BOTH = pytest.mark.parametrize("options", [ServerOptions, MasterOptions], ids=["server", "master"])
PARSERS: dict[type, Any] = {ServerOptions: parse_server, MasterOptions: parse_master}


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str], options: type = ServerOptions) -> str:
    """The line with which a process ends whose options cannot be."""
    with pytest.raises(SystemExit) as ended:
        PARSERS[options](arguments)
    told = capsys.readouterr()
    assert ended.value.code == 2 and told.out == "" and told.err.count("\n") == 1, told.err
    return told.err.strip()


@BOTH
def test_printed_file_is_a_file_of_the_defaults(
    options: type, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: `--print-config` prints a file that is read as it stands, has each option, explains it, and changes none.
    Method: print, read, compare with the defaults; the options made of it, with a directory, are those without it."""
    with pytest.raises(SystemExit) as ended:
        PARSERS[options](["--print-config"])
    text = capsys.readouterr().out
    assert ended.value.code == 0 and text == config_text(options)
    file = tmp_path / "all.toml"
    file.write_text(text)
    known = {flag.removeprefix("--").replace("-", "_") for flag, _, _ in table_of(options)}
    values = read_file(options, str(file))
    assert values == tomllib.loads(text) and values.keys() == known - {"ready_file", "parent_fd"}
    assert all(text[: text.index(f"\n{name} = ")].splitlines()[-1].startswith("# ") for name in values)
    assert PARSERS[options](["--config", str(file), "--root", "/r"]) == options(root="/r")
    assert PARSERS[options](["--root", "/r"]) == options(root="/r")


@BOTH
def test_each_option_is_set_by_flag_variable_and_file(
    options: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a flag comes before the variable, that before the file, that before the default, for each option by itself.
    Method: three ports of metrics in the three places, taken away one after the other, beside others in one place."""
    prefix = "NYALA_SERVER" if options is ServerOptions else "NYALA_MASTER"
    file = tmp_path / "o.toml"
    file.write_text('root = "/file"\nmetrics_port = 1\npeer_port = 7\ninsecure = true\nlisten = "h:1"\n')
    monkeypatch.setenv(f"{prefix}_METRICS_PORT", "2")
    monkeypatch.setenv(f"{prefix}_LISTEN", "h:2")
    given = ["--config", str(file)]
    by_flag = PARSERS[options]([*given, "--metrics-port", "3", "--no-insecure"])
    assert (by_flag.process.metrics_port, by_flag.process.insecure, by_flag.peer_port, by_flag.root) == (
        3,
        False,
        7,
        "/file",
    )
    by_variable = PARSERS[options](given)
    assert (by_variable.process.metrics_port, by_variable.listen, by_variable.process.insecure) == (2, "h:2", True)
    monkeypatch.delenv(f"{prefix}_METRICS_PORT")
    assert PARSERS[options](given).process.metrics_port == 1
    monkeypatch.setenv(f"{prefix}_CONFIG", str(file))
    assert PARSERS[options]([]).process.metrics_port == 1
    monkeypatch.delenv(f"{prefix}_CONFIG")
    assert PARSERS[options](["--root", "/r"]).process.metrics_port == -1


def test_values_of_all_types_are_read_from_each_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: lists of addresses, numbers, marks, a login and the bounds of moves mean the same in each place. Method: a
    master of a file, and one of flags and variables."""
    login = tmp_path / "login"
    login.write_text("security.protocol=SSL\n")
    file = tmp_path / "o.toml"
    file.write_text(
        f'root = "/r"\npeers = ["a:1", "[::1]:2"]\nheal_by_witness = true\nmoves_max = 4\n'
        f'kafka_properties = "{login}"\nexecute_decisions = "master"\n'
    )
    of_file = parse_master(["--config", str(file)])
    assert [str(peer) for peer in of_file.peers] == ["a:1", "[::1]:2"] and of_file.caps.moves_max == 4
    assert of_file.kafka_security.properties == (("security.protocol", "SSL"),)
    monkeypatch.setenv("NYALA_MASTER_PEERS", "a:1, [::1]:2")
    monkeypatch.setenv("NYALA_MASTER_HEAL_BY_WITNESS", "True")
    flags = ["--root", "/r", "--moves-max", "4", "--kafka-properties", str(login), "--execute-decisions", "master"]
    assert parse_master(flags) == of_file
    server = tmp_path / "s.toml"
    server.write_text('root = "/r"\nunsafe_no_wal_sync = true\nscrub_interval_s = 60\n')
    of_server = parse_server(["--config", str(server)])
    assert not of_server.wal_sync and of_server.scrub_interval_s == 60.0
    assert of_server == parse_server(["--root", "/r", "--unsafe-no-wal-sync", "--scrub-interval-s", "60"])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("memory_soft_byte = 1", "no option memory_soft_byte; write memory_soft_bytes, which takes a whole number"),
        ("memory_soft_mb = 1", "no option memory_soft_mb; write memory_soft_bytes, which takes a whole"),
        ("scrub_interval_ms = 1", "no option scrub_interval_ms; write scrub_interval_s, which takes a number"),
        ("zzz = 1", "there is no option zzz; --print-config shows all of them"),
        ("parent_fd = 3", "there is no option parent_fd"),
        ("[server]\nroot = 'x'", "server = {'root': 'x'}: there is no option server"),
        ('memory_soft_bytes = "2 GiB"', "'2 GiB': memory_soft_bytes takes a whole number of bytes, without a unit; "
         "write memory_soft_bytes = 2147483648"),
        ('scrub_interval_s = "1.5h"', "without a unit; write scrub_interval_s = 5400.0"),
        ('scrub_mb_per_s = "16MB/s"', "10^6 bytes per second, without a unit; write scrub_mb_per_s = 16"),
        ('copy_rate_bytes_per_s = "1MiB/s"', "without a unit; write copy_rate_bytes_per_s = 1048576"),
        ('memory_soft_bytes = "2 s"', "memory_soft_bytes takes a whole number of bytes. Nothing"),
        ('metrics_port = "9090"', "'9090': metrics_port takes a whole number. Nothing"),
        ("metrics_port = 9.5", "metrics_port takes a whole number"),
        ("metrics_port = true", "metrics_port takes a whole number"),
        ("scrub_interval_s = nan", "scrub_interval_s takes a number of seconds"),
        ("insecure = 1", "insecure takes true or false"),
        ("listen = 7050", "listen takes a text in quotation marks"),
        ('masters = "a:1"', 'masters takes a list of addresses, such as ["host:7051"]'),
        ("masters = [1]", "masters takes a list of addresses"),
        ("masters = ['a']", "'a' is not an address of the form host:port"),
        ("root = 'r'\nlisten = 'h'", "'h' is not an address of the form host:port"),
        ("root = ''", "a server needs a directory"),
        ("root = 1\nroot = 2", "cannot be read: Cannot overwrite a value (at"),
        ("root = ", "cannot be read: Invalid value (at"),
        ("root = 'r'\nlocation = 'x'", "a location is /zone"),
    ],
)  # fmt: skip
def test_wrong_file_is_refused_in_one_line_that_says_what_to_write(
    line: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: unknown keys, wrong types and wrong units start nothing; the line names file, key, value and remedy.
    Method: one wrong line each."""
    file = tmp_path / "o.toml"
    file.write_text(line)
    said = refused(["--config", str(file)], capsys)
    assert told in said, said
    assert "an address" in told or "location" in told or "directory" in told or str(file) in said


def test_file_that_cannot_be_read_starts_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: a file that is absent, no text, deeply nested or huge is refused, and read to a bound. Method: each."""
    file = tmp_path / "o.toml"
    for content in (None, b"\xff", b"a = " + b"[" * 5000, b"#" * (CONFIG_BYTES_MAX + 1)):
        if content is not None:
            file.write_bytes(content)
        said = refused(["--config", str(file)], capsys)
        assert f"the file of options {file} cannot be read" in said and "Nothing was started" in said
    assert f"{CONFIG_BYTES_MAX} bytes" in said


def test_wrong_variable_or_flag_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: a misspelt variable is no default without a word, and one of another program stops nothing. Method: both,
    as Kubernetes makes them of a service's name; a value with a unit in the environment and as a flag."""
    monkeypatch.setenv("NYALA_SERVER_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("NYALA_SERVER_PORT", "tcp://10.0.0.1:7050")
    monkeypatch.setenv("NYALA_SERVER_PORT_7050_TCP", "tcp://10.0.0.1:7050")
    assert parse_server(["--root", "/r"]) == ServerOptions(root="/r")
    monkeypatch.setenv("NYALA_SERVER_METRIC_PORT", "1")
    assert "NYALA_SERVER_METRIC_PORT in the environment is no option; write NYALA_SERVER_METRICS_PORT" in refused(
        ["--root", "/r"], capsys
    )
    monkeypatch.delenv("NYALA_SERVER_METRIC_PORT")
    said = refused(["--root", "/r", "--scrub-interval-s", "1d"], capsys)
    assert "--scrub-interval-s: '1d'" in said and "write scrub_interval_s = 86400.0" in said
    monkeypatch.setenv("NYALA_SERVER_INSECURE", "yes")
    assert "NYALA_SERVER_INSECURE in the environment: 'yes': insecure takes true or false" in refused([], capsys)


def test_values_in_force_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: an operator sees what a process would run with. Method: a file and a flag; the print is a file again, with
    a quotation mark and a backslash in a name."""
    file = tmp_path / "o.toml"
    root = 'a "b" \\ \u00e9'
    file.write_text(f"root = {json.dumps(root)}\nmasters = ['a:1']\n")
    with pytest.raises(SystemExit):
        parse_server(["--config", str(file), "--tablets-max", "9", "--print-config"])
    found = tomllib.loads(capsys.readouterr().out)
    assert (found["root"], found["masters"], found["tablets_max"]) == (root, ["a:1"], 9)


@BOTH
def test_reference_has_the_table_of_the_options(options: type) -> None:
    """Goal: the page says what the code does. Method: each option's row is made of its definition."""
    page = (ROOT / "docs/reference/README.md").read_text()
    rows = [f"| `{flag}` | {default.removeprefix('default: ')} | {text} |" for flag, default, text in table_of(options)]
    assert "\n".join(rows) in page, "\n".join(rows)


def test_files_on_the_pages_are_files_of_options(tmp_path: Path) -> None:
    """Goal: a reader can copy a file of options from a page. Method: read each, as a master's if it names peers."""
    files = [block.text for page in pages_of_users() for block in blocks(page) if block.kind == "toml"]
    for text in files:
        file = tmp_path / "o.toml"
        file.write_text(text)
        parse = parse_master if "peers" in tomllib.loads(text) else parse_server
        assert parse(["--config", str(file)]).root
    assert files


@pytest.mark.process
@pytest.mark.parametrize("kind", ["server", "master"])
def test_command_becomes_the_process(kind: str, tmp_path: Path) -> None:
    """Goal: `nyala server run` and `nyala master run` take the same options as the programs, and hand their status on.
    Method: print a file by each; a wrong one ends with status 2; a folder `nyala` in the working directory is not taken
    for the package."""
    (tmp_path / "nyala").mkdir()
    (tmp_path / "nyala" / "__init__.py").write_text("raise SystemExit(9)")
    command = [sys.executable, "-P", "-m", "nyala.infra.cli.app", kind, "run"]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *arguments], cwd=tmp_path, capture_output=True, text=True)

    options = ServerOptions if kind == "server" else MasterOptions
    assert run("--print-config").stdout == config_text(options)
    wrong = run("--metrics-port", "x", "--root", "r")
    assert wrong.returncode == 2 and f"nyala {kind} run: --metrics-port: 'x'" in wrong.stderr
    assert "--memory-soft-bytes" in run("--", "--help").stdout or kind == "master"
