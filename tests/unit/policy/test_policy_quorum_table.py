"""Scenario 106: the add/evict questions of Kudu's quorum_util-test and its answers, asked of our table, one by one.

A line is a config in the words of `tablet`, then what is asked of it. `@` in a config stands for each of the states
after `for`. `add 3 yes`: with three voters wanted one more is to be added. `add 3 no without a`: the same, a's failures
passed over, as Kudu does in maintenance. `evict a 3 b/c`: with three wanted and a as the leader, b or c is to be
evicted; `none` for nobody; `-` for no leader. An answer of ours that differs follows as `!WHY answer`; `AWAY` says why.
A member that Kudu has no report of is UNKNOWN here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import nyala.replica.raft
from nyala.replica.policy import Need, advise, can_commit, is_under_replicated
from tests.harness.policy_views import tablet

AWAY = {
    "LOST": "D-20: a voter that can never catch up stays until its replacement votes; it is copied to",
    "STANDBY": "D-21: a non-voter that nobody marked was put there by an operator, and stays",
    "LEADS": "D-22: the table says to whom a marked leader hands over, and who is not marked stays until then",
    "SILENCE": "D-23: the table knows no maintenance; a server may be silent for the re-replication delay",
}

SHOULD_ADD = """
a:U b:U c:U: add 2 no, add 3 no, add 4 no
a:@ b:@ c:@ for FX: add 2 no, add 3 no, add 4 no
a:U b:U c:F: add 2 no, add 3 no
a:H b:H c:Hn: add 2 no, add 3 yes
a:U b:U c:Hn: add 2 no, add 3 no
a:U b:@ c:Hn for FX: add 1 no, add 2 no, add 3 no
a:U b:@ c:Hp for FX: add 1 no, add 2 no, add 3 no
a:U b:@ c:@p for FX: add 1 no, add 2 no, add 3 no
a:H b:H c:@ for FX: add 2 no, add 3 yes
a:H b:H c:U: add 2 no, add 3 no
a:H b:H c:Hr: add 2 no, add 3 yes
a:H b:H c:Hr d:Hn: add 2 no, add 3 yes, add 4 yes
a:H b:H c:Hr d:Hp: add 2 no, add 3 no, add 4 yes
a:H b:H c:@ d:@n for FX: add 2 no, add 3 yes
a:H b:H c:@ d:Hn for FX: add 2 no, add 3 yes, add 4 yes
a:H b:H c:@ d:Hp for FX: add 2 no, add 3 no, add 4 yes
a:H b:H c:@ d:@p for FX: add 2 no, add 3 yes
a:@ b:H c:H d:@p e:Hp for FX: add 3 no
a:@ b:H c:H d:@p e:Hn for FX: add 3 yes
a:H b:@ c:@ for FX: add 3 no
a:H b:@ c:H d:@ e:H for FX: add 3 no, add 4 yes, add 5 yes
"""

FAILURES_PASSED_OVER = """
a:U b:F c:H: add 3 no without b, add 3 no without a
a:U b:H c:H: add 3 no, add 3 no without a
a:F b:H c:H: add 3 yes without b, add 3 no without a !SILENCE yes, add 3 no without abc !SILENCE yes
a:F b:F c:H: add 3 no without a, add 3 no without ab, add 3 no without abc
a:F b:H: add 3 no without a, add 3 no without b
a:F b:F c:H d:H e:H: add 5 no without ab !SILENCE yes, add 5 yes without a
a:@r b:H c:H for HFU: add 3 yes without a
a:Hr b:F c:H: add 3 yes without a
a:@p b:H c:H for HU: add 3 no without a
a:Fp b:H c:H: add 3 no without a !SILENCE yes
a:@p b:Fp c:H d:H e:H for HFU: add 5 no without ab !SILENCE yes, add 5 yes without a
"""

EVICT_VOTERS = """
a:U b:F c:H: evict c 1 none, evict c 2 none, evict c 3 none
a:Hr b:U c:U: evict a 3 none, evict a 2 none
a:H b:H c:F d:H: evict a 4 none, evict a 3 c
a:H b:U c:H d:H: evict a 4 none, evict a 3 b
a:H b:H c:F d:@r for FX: evict a 2 d, evict a 3 d
a:H b:H c:F d:@r for HU: evict a 2 c, evict a 3 c
a:H b:H c:F d:@r for HUF: evict a 4 none
a:H b:H c:F d:Xr: evict a 4 d !LOST none
a:H b:H c:U d:Hr: evict a 3 none, evict a 2 d
a:H b:X c:H: evict a 3 b !LOST none, evict a 2 b
a:H b:F c:X: evict a 3 none, evict a 2 none
a:U b:U c:U: evict - 2 none, evict - 3 none
a:U b:U c:@ for FX: evict - 3 none, evict - 2 none
a:H b:H c:@ for FX: evict a 1 c, evict a 2 c
a:H b:H c:F: evict a 3 none
a:H b:H c:X: evict a 3 c !LOST none
a:H b:U c:X: evict a 3 none
"""

EVICT_NON_VOTERS = """
a:U: evict - 1 none
a:H: evict a 1 none
a:H b:Un: evict a 2 none, evict a 1 b !STANDBY none
a:H b:H c:Hn: evict a 2 c !STANDBY none, evict a 1 c !STANDBY b
a:H b:Fp: evict a 2 b, evict a 1 b
a:H b:Fn c:Un: evict a 2 b, evict a 1 b
a:H b:Un c:Hn: evict a 2 none, evict a 1 b !STANDBY none
a:H b:H c:Un: evict a 2 c !STANDBY none, evict a 1 c !STANDBY b
a:H b:U c:Un: evict a 2 none, evict a 1 b
a:H c:Un: evict a 1 c !STANDBY none
a:F b:U c:Un: evict - 2 none, evict - 1 none
a:F b:H c:H d:Hp: evict b 3 none, evict b 2 d
a:F b:H c:H d:Fp: evict b 4 d, evict c 3 d
a:F b:H c:H d:Up: evict b 3 none, evict b 4 none
a:F b:H c:H d:Xp: evict b 3 d, evict b 4 d
a:X b:H c:H d:Xn: evict b 3 d, evict b 4 d
a:X b:H c:H d:Fn: evict b 3 a !LOST d, evict b 4 a !LOST d
a:H b:F c:Fp: evict a 2 none, evict a 1 b
a:H c:Fp: evict a 1 c
"""

LEADERS_AND_TOO_MANY = """
a:H b:H c:H d:H: evict a 3 b/c/d, evict b 3 a/c/d, evict c 3 a/b/d, evict d 3 a/b/c
a:H b:H c:U d:F: evict a 3 d, add 3 no
a:H b:H c:F d:F: evict a 3 c/d, add 3 no
"""

MARKED = """
a:Hr: add 1 yes, evict a 1 none
a:Hr b:H: add 1 no, evict a 1 none !LEADS lead b, evict b 1 a
a:Hr b:@n for HUFX: add 1 yes
a:Hr b:@n for HU: evict a 1 none
a:Hr b:@n for FX: evict a 1 b
a:Hr b:@p for HU: add 1 no, evict a 1 none
a:Hr b:@p for FX: add 1 yes, evict a 1 b
a:Hr b:H c:H: evict a 3 none, add 3 yes
a:Hr b:H c:H d:H: evict a 3 none !LEADS lead b, add 3 no, evict b 3 a, evict c 3 a, evict d 3 a
a:@r b:H c:H d:H for UFX: evict b 3 a, evict c 3 a, evict d 3 a, add 3 no
a:Hr b:H c:H d:H e:H: evict a 3 b/c/d/e !LEADS lead b, add 3 no
a:Hr b:H c:H d:H e:H: evict b 3 a, evict c 3 a, evict d 3 a, evict e 3 a
a:Hr b:Hr c:Hr d:Hr: evict a 3 b/c/d, add 3 yes
a:Hr b:Hr c:Hr d:@r for UFX: evict a 3 d, add 3 yes
a:@r b:Hr c:Hr d:H for UFX: evict b 3 a, evict c 3 a, evict d 3 a, add 3 yes
a:Hr b:Hr c:Hr d:F: evict a 3 d, add 3 yes
a:Hr b:Hr c:Hr d:U: evict b 3 none, add 3 yes
a:Hr b:Hr c:U d:@r e:H for UFX: evict a 3 d, add 3 yes
"""

MARKED_LEADER = """
a:Hr b:H c:H d:@p for HU: evict a 3 none, add 3 no
a:Hr b:H c:H d:H: evict a 3 none !LEADS lead b, add 3 no
a:Hr b:H c:H d:U: evict a 3 none, add 3 no
a:Hr b:H c:H d:Fn: evict a 3 d, add 3 yes
a:Hr b:H c:H d:Fp: evict a 3 d, add 3 yes
a:Hr b:H c:H d:F: evict a 3 d, add 3 yes
a:Hr b:H c:H d:Hp e:Hn: evict a 3 none, add 3 no
a:Hr b:H c:H d:H e:Hn: evict a 3 e !LEADS lead b, add 3 no
a:Hr b:H c:H d:Hp e:H: evict a 3 d, add 3 no
"""

MANY_MARKED = """
a:Hr b:Hr c:Hr d:Fn: evict a 3 d, add 3 yes
a:Hr b:Hr c:Hr d:F: evict a 3 d, add 3 yes
a:Hr b:Hr c:Hr d:@n for HU: evict a 3 none, add 3 yes
a:Hr b:Hr c:Hr d:U: evict a 3 none, evict b 3 none, evict c 3 none, add 3 yes
a:Hr b:Hr c:H d:Hp e:Hp: evict a 3 none, evict c 3 none, add 3 no
a:Hr b:Hr c:Hr: evict a 3 none, add 3 yes
a:Hr b:Hr c:H d:H: evict a 3 b, add 3 yes
a:Hr b:Hr c:Hr d:H: evict a 3 b/c, add 3 yes
a:Hr b:H c:H d:Hn: evict a 3 none, add 3 yes
a:Hr b:Hr c:Hr d:H e:H: evict a 3 b/c, add 3 yes
a:Hr b:Hr c:Hr d:H e:H f:H: evict a 3 b/c, evict b 3 a/c, evict c 3 a/b, evict d 3 a/b/c, evict e 3 a/b/c
a:Hr b:Hr c:Hr d:H e:H f:H: evict f 3 a/b/c, add 3 no
a:Hr b:Hr c:Hr d:Hp e:Hp f:Hp: evict a 3 none, evict b 3 none, evict c 3 none, add 3 no
"""

NON_VOTER_FALLS_BEHIND = """
a:H b:H c:H: evict a 3 none, add 3 no
a:H b:X c:H: evict a 3 b !LOST none
a:H c:H: evict a 3 none, add 3 yes
a:H c:H d:@p for UH: evict a 3 none, add 3 no
a:H c:H d:Xp: evict a 3 d
a:H c:H e:@p for UH: evict a 3 none, add 3 no
a:H c:H e:H: evict a 3 none, add 3 no
a:H c:H e:X: evict a 3 e !LOST none
a:H c:H f:@p for UH: evict a 3 none, add 3 no
a:H c:H f:H: evict a 3 none, add 3 no
"""

NEW_VOTER_CRASHES = """
a:H b:H c:H: evict a 3 none, add 3 no
a:H b:F c:H: evict a 3 none, add 3 yes
a:H b:F c:H d:@p for UH: evict a 3 none, add 3 no
a:H b:F c:H d:@ for HU: evict a 3 b, add 3 no
a:H b:F c:H d:F: evict a 3 b/d, add 3 no
a:H c:H d:F: evict a 3 none, add 3 yes
a:H c:H d:F e:@p for UH: evict a 3 none, add 3 no
a:H c:H d:F e:H: evict a 3 d, add 3 no
a:H c:H e:H: evict a 3 none, add 3 no
"""

HEALTH_FLAPS = """
a:H b:@ c:U for UH: evict a 3 none, add 3 no
a:H b:H c:H: evict a 3 none, add 3 no
a:U b:H c:U: evict b 3 none, add 3 no
a:H b:H c:F: evict b 3 none, add 3 yes
a:H b:H c:F d:Up: evict b 3 none, add 3 no
a:H b:U c:U d:Up: evict a 3 none, add 3 no
a:H b:H c:U d:Hp: evict a 3 none, add 3 no
a:H b:H c:U d:H: evict a 3 c, evict d 3 c, add 3 no
a:U b:U c:U d:H: evict d 3 none, add 3 no
a:H b:H c:F d:H: evict d 3 c, add 3 no
a:H b:H d:H: evict d 3 none, add 3 no
"""

ALL_REPLACED = """
a:Hr b:Hr c:Hr: evict a 3 none, add 3 yes
a:Hr b:Hr c:Hr d:Up: evict a 3 none, add 3 yes
a:Hr b:Hr c:Hr d:Up e:Up: evict a 3 none, add 3 yes
a:Hr b:Hr c:Hr d:@p e:Up f:Up for UH: evict a 3 none, add 3 no
a:Hr b:Hr c:Hr d:H e:Up f:Up: evict a 3 b/c, add 3 no
a:Hr c:Hr d:H e:Up f:Up: evict a 3 none, add 3 no
a:Hr c:Hr d:H e:Up f:Fp: evict a 3 f, add 3 yes
a:Hr c:Hr d:H e:Up: evict a 3 none, add 3 yes
a:Hr c:Hr d:H e:Up g:@p for UH: evict a 3 none, add 3 no
a:Hr c:Hr d:H e:Hp g:Hp: evict a 3 none, add 3 no
a:Hr c:Hr d:H e:H g:Hp: evict a 3 c, add 3 no
a:Hr d:H e:H g:Hp: evict a 3 none, add 3 no
a:Hr d:H e:H g:H: evict a 3 none !LEADS lead d, evict g 3 a, add 3 no
d:H e:H g:H: evict g 3 none, add 3 no
"""


@dataclass(frozen=True)
class Row:
    """One question: Kudu's answer, and ours with the reason if it is another one."""

    words: str
    ask: str
    kudu: str
    ours: str
    why: str


def _rows(table: str) -> Iterator[Row]:
    for line in table.strip().splitlines():
        config, _, questions = line.partition(": ")
        config, _, states = config.partition(" for ")
        for state in states or " ":
            for question in questions.split(", "):
                asked, _, away = question.partition(" !")
                why, _, ours = away.partition(" ")
                parts = asked.split()
                place = 2 if parts[0] == "add" else 3
                ask = " ".join(parts[:place] + parts[place + 1 :])
                yield Row(config.replace("@", state), ask, parts[place], ours or parts[place], why)


ROWS = [
    pytest.param(row, id=f"{name}-{row.words}-{row.ask}".replace(" ", "_"))
    for name, table in sorted(globals().items())
    if name.isupper() and isinstance(table, str)
    for row in _rows(table)
]


@pytest.mark.parametrize("row", ROWS)
def test_advise_answers_as_kudu_or_says_why_not(row: Row) -> None:
    """Goal: scenario 106: each row of Kudu's table has Kudu's answer here, or another one for a reason in
    `DIVERGENCES.md`. Method: one question a row; where our answer is another one on purpose, it is another one, of a
    reason that `DIVERGENCES.md` tells."""
    kind, *rest = row.ask.split()
    if kind == "add":
        view = tablet(row.words, tablet(row.words).config.voters[0], rf=int(rest[0]))
        adds = is_under_replicated(view) and can_commit(view)
        got = "yes" if adds else "no"
        said = advise(view)
        assert (said.need is Need.ADD) == (adds and said.need not in (Need.EVICT, Need.TRANSFER)), said
    else:
        leader, rf = rest
        said = advise(tablet(row.words, "" if leader == "-" else leader, rf=int(rf)))
        got = {Need.EVICT: said.uuid, Need.TRANSFER: f"lead {said.uuid}"}.get(said.need, "none")
    assert got in row.ours.split("/"), said.reason
    assert not row.why or got not in row.kudu.split("/"), f"no difference here: {AWAY[row.why]}"


def test_table_is_whole_and_each_reason_to_differ_is_told() -> None:
    """Goal: the table has all rows of Kudu's, and each reason for a difference is written in `DIVERGENCES.md`. Method:
    count; the ids stand in the document."""
    rows = [p.values[0] for p in ROWS]
    assert len(rows) > 420 and {row.why for row in rows if row.why} == set(AWAY)
    told = (Path(nyala.replica.raft.__file__).parent / "DIVERGENCES.md").read_text()
    for why in AWAY.values():
        assert f"**{why.partition(':')[0]} " in told
