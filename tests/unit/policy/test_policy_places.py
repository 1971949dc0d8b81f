"""Where one replica goes: limits, locations, servers that are to be emptied."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nyala.replica.policy import ServerView, pick_server, place_tablets, replacements_for, room_left
from nyala.replica.types import Refused
from tests.harness.policy_views import cluster, server, tablet


def test_room_left_is_known_if_every_server_names_a_limit() -> None:
    """CN-03. Goal: a refusal gives the room that is left, if all servers have a limit. Method: two limited servers, one
    of which holds more than it may; a retired one; then one without a limit beside one that has it."""
    limited = [server("a", tablets_max=5), server("b", tablets_max=1)]
    assert room_left(limited, {"a": 2, "b": 3}) == 3
    assert room_left([*limited, server("c", tablets_max=7, draining=True)], {"a": 2, "b": 3}) == 3
    assert room_left([*limited, server("c")], {}) is None


def test_pick_server_takes_one_that_holds_nothing_yet() -> None:
    """CN-03. Goal: an empty server with a limit of one replica gets it. Method: no loads are known of it."""
    one = server("a", tablets_max=1)
    assert pick_server([one], [], [{}]) == one and pick_server([one], [], [{"a": 1}]) is None


def test_place_a_retired_server_is_not_counted() -> None:
    """Goal: the refusal says how many servers there are to choose from. Method: three live ones, one retired."""
    with pytest.raises(Refused, match=r"need as many live tablet servers.*alive=2"):
        place_tablets([server("a"), server("b"), server("c", draining=True)], {}, 1, 3)


def test_place_the_tablets_of_one_table_are_spread_before_servers_are_evened_out() -> None:
    """Goal: a table's tablets go to as many servers as possible, before the numbers of replicas are balanced. Method:
    two tablets of one replica, one server holds more already."""
    assert place_tablets([server("a"), server("b")], {"b": 1}, 2, 1) == [["a"], ["b"]]


def test_replacement_goes_where_the_lost_one_stood() -> None:
    """Goal: a replacement keeps the number of locations that have a replica. Method: one lost, then one on a retired
    server, alone in its location: of two free servers the one there is best; a member whose server nobody knows stands
    nowhere."""
    places = dict(zip("abcde", "xyzxz", strict=True))
    for words, draining in (("a b c:F", ""), ("a b c", "c")):
        view = cluster("abcde", draining=draining)
        view = replace(view, servers=tuple(replace(s, location=places[s.uuid]) for s in view.servers))
        assert [s.uuid for s in replacements_for(view, tablet(words, "a"), {"e": 5})] == ["e"]
        assert [s.uuid for s in replacements_for(view, tablet(f"{words} z", "a"), {"e": 5})] == ["e"]


@pytest.mark.parametrize(
    ("places", "load", "chosen"),
    [
        ("/d/1 /d/2 /d/3 /e/1", {"d": 9}, "adb"),
        ("/d/1 /d/1 /d/2 /d/2", {"c": 9}, "adb"),
        ("/d/1 /d/2 /e/1 /e/1", {}, "acb"),
        ("x x y z", {"c": 1, "d": 2}, "acd"),
    ],
)
def test_replicas_are_spread_over_wider_locations_first(places: str, load: dict[str, int], chosen: str) -> None:
    """OP-05. Goal: a data center that fails takes as few replicas of a tablet as possible, then a rack. Method: servers
    in these places, and loads that speak against it; three replicas."""
    hosts = [server(u, location=place) for u, place in zip("abcd", places.split(), strict=True)]
    taken: list[ServerView] = []
    for _ in range(3):
        best = pick_server(hosts, taken, (load,))
        assert best is not None
        taken.append(best)
    assert "".join(s.uuid for s in taken) == chosen
    assert server("a", location="/d/1/2").places == ("/d", "/d/1", "/d/1/2") and server("a").places == ("",)
