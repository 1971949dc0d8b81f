"""A local stack with three masters: one of them dies, all come back, and their number is not changed by a start."""

from __future__ import annotations

from pathlib import Path

import pytest

import nyala
from nyala.infra.local import StackError, StackOptions, Supervisor, read_state
from nyala.replica.tools import ask_masters
from tests.harness.cluster import wait_until

pytestmark = pytest.mark.process


def leading(supervisor: Supervisor, connected: nyala.Cluster) -> str | None:
    """Return the name of the only master that reports that it leads."""
    views = ask_masters(connected.client, connected.client.list_servers())
    uuids = [v.uuid for v in views if v.status is not None and v.status.replica.role == "LEADER"]
    names = [n for n, child in supervisor.children.items() if child.ready.get("uuid") in uuids]
    return names[0] if len(names) == 1 else None


def test_stack_of_three_masters_goes_on_without_the_leading_one_and_comes_back_where_it_was(tmp_path: Path) -> None:
    """Goal: three masters on one machine are one group, over restarts of the stack. Method: the leading one is killed
    for good; a table is made. The stack ends and starts, without an option for the number of masters: all three are
    there, at their addresses, with the table. With another number in the option, it prints one line and starts
    nothing."""
    options = StackOptions(servers=1, masters=3, kafka=False)
    with Supervisor(tmp_path, options) as supervisor:
        masters = supervisor.masters
        assert len(masters.split(",")) == 3
        with nyala.connect(masters) as connected:
            wait_until(lambda: connected.client.list_servers().servers, "the server is heard")
            supervisor.kill_for_good(wait_until(lambda: leading(supervisor, connected), "one leads"))
            wait_until(lambda: connected.client.list_servers().servers, "another one leads, and hears the server")
            connected.create_table("t", {"id": "int64"}, key="id", replication_factor=1)
    before = read_state(tmp_path)
    with pytest.raises(StackError, match=r"has 3 masters, not 1; nothing was started or changed.*--masters 3.*--dir"):
        Supervisor(tmp_path, StackOptions(masters=1, kafka=False)).start()
    assert read_state(tmp_path) == before
    with Supervisor(tmp_path, StackOptions(servers=1, kafka=False)) as supervisor:
        assert supervisor.masters == masters and len(supervisor.children) == 4
        with nyala.connect(masters) as connected:
            assert [t.name for t in connected.client.list_tables()] == ["t"]
            found = ask_masters(connected.client, connected.client.list_servers())
            assert len(found) == 3 and all(v.status is not None for v in found)


def test_number_of_masters_that_no_stack_may_have_is_refused() -> None:
    """Goal: MF-22, as an operator may mistype it. Method: none, two, seven."""
    for count in (0, 2, 7):
        with pytest.raises(StackError, match=rf"^{count} masters asked for: one, three or five"):
            StackOptions(masters=count)
