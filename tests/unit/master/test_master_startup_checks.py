"""The allowed numbers of masters, at every place where an operator gives a number."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nyala.infra.local.state import StackError
from nyala.infra.local.supervisor import StackOptions
from nyala.replica.master.group.startup_checks import check_peers
from nyala.replica.types import Address, Code, Refused, limits

ROOT = Path(__file__).resolve().parents[3]


def refusals(count: int) -> list[str]:
    """Return the answers of a master with so many `--peers`, and of a stack of so many masters."""
    peers = [Address("m.example", n + 1) for n in range(count)]
    said = []
    try:
        check_peers(peers[0], peers)
    except Refused as refused:
        assert refused.code is Code.INVALID_ARGUMENT
        said.append(str(refused))
    try:
        StackOptions(masters=count)
    except StackError as error:
        said.append(str(error))
    return said


@pytest.mark.parametrize("count", range(1, 9))
def test_one_three_or_five_masters_and_no_other_number(count: int) -> None:
    """Goal: MF-22: one truth about the number of masters. Method: one to eight are asked for at a master's options and
    at a local stack's; both take the numbers of `limits.MASTERS`, and refuse others with those numbers."""
    said = refusals(count)
    assert len(said) == (0 if count in limits.MASTERS else 2)
    assert all(f"{count} masters" in text and "one, three or five" in text for text in said)


def test_pages_and_helps_name_the_numbers_of_the_code() -> None:
    """Goal: MF-22. Method: the reference, the concepts, how to deploy, and the option of `nyala up`."""
    digits, words = "1, 3 or 5", "one, three or five"
    assert re.findall(r"\d+", digits) == [str(n) for n in limits.MASTERS]
    for file, text in (
        ("docs/reference/README.md", digits),
        ("infra/cli/stack.py", digits),
        ("docs/concepts.md", words),
        ("docs/operate/deploy.md", words),
    ):
        assert text in (ROOT / file).read_text(), file
