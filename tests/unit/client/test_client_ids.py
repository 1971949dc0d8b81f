"""The names under which a process writes are lent, not made anew."""

from __future__ import annotations

import subprocess
import sys

import pytest

from nyala.replica.client.client_ids import ClientIds


def test_identity_given_back_is_lent_again_with_its_numbers() -> None:
    """Goal: a writer gets a client id that another one has given back, so a program with a writer for each row is one
    client to the tablets; no sequence number is used twice. Method: take, use, give back, take."""
    client_ids = ClientIds()
    first = client_ids.take()
    assert [first.next_sequence(), first.next_sequence()] == [1, 2]
    client_ids.give_back(first)
    again = client_ids.take()
    assert again.client_id == first.client_id and again.next_sequence() == 3


def test_identities_in_use_at_once_differ() -> None:
    """Goal: two open writers have different client ids. Method: two taken before either comes back."""
    client_ids = ClientIds()
    one, other = client_ids.take(), client_ids.take()
    assert one.client_id != other.client_id


@pytest.mark.deep
def test_identities_are_not_inherited_by_a_forked_child() -> None:
    """Goal: a forked child does not use its parent's client ids. Method: give one back, fork, take in both; in a
    process of its own, for this one has threads, whose locks a fork would copy as they are."""
    code = """
import os
from nyala.replica.client.client_ids import ClientIds
client_ids = ClientIds()
kept = client_ids.take()
client_ids.give_back(kept)
child = os.fork()
if child:
    os.waitpid(child, 0)
print("parent" if child else "child", client_ids.take().client_id == kept.client_id, flush=True)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.splitlines() == ["child False", "parent True"]
