"""One supervised stack for all tests that need no special one: starting processes is what costs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.cluster import wait_until
from tests.harness.stack import Stack, log_ends, running_stack


@pytest.fixture(scope="session")
def whole_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("stack")) as made:
        yield made


@pytest.fixture
def stack(whole_stack: Stack, request: pytest.FixtureRequest) -> Iterator[Stack]:
    """The shared stack with all its servers, and without the tables of the tests before."""
    client = whole_stack.client
    alive = lambda: sum(s.alive for s in client.list_servers().servers) == 3  # noqa: E731
    wait_until(alive, "three servers are alive")
    failed_before = request.session.testsfailed
    yield whole_stack
    if request.session.testsfailed > failed_before:
        print(log_ends(whole_stack.supervisor))
    for table in client.list_tables():
        client.drop_table(table.name)
