"""Where one replica goes: limits, locations, servers that are to be emptied."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.replica.policy import ServerView, place_tablets, replacements_for, room_left
from nyala.replica.types import Refused
from tests.harness.policy_views import cluster, server, tablet


def test_room_left_is_known_if_every_server_names_a_limit() -> None:
    """CN-03. Goal: a refusal gives the room that is left, if all servers have a limit. Method: two limited servers, one
    of which holds more than it may; a retired one; then one without a limit beside one that has it."""
    limited = [server("a", tablets_max=5), server("b", tablets_max=1)]
    assert room_left(limited, {"a": 2, "b": 3}) == 3
    assert room_left([*limited, server("c", tablets_max=7, draining=True)], {"a": 2, "b": 3}) == 3
    assert room_left([*limited, server("c")], {}) is None


def test_server_with_room_for_one_replica_gets_it_and_no_second_one() -> None:
    """CN-03. Goal: an empty server with a limit of one replica gets it, as a new tablet's and as a replacement; a full
    one gets none. Method: no loads are known of it, then one."""
    one = server("d", tablets_max=1)
    assert place_tablets([one], {}, 1, 1) == [["d"]]
    with pytest.raises(Refused, match="no room"):
        place_tablets([one], {"d": 1}, 1, 1)
    view = replace(cluster("abcd"), servers=(*map(server, "abc"), one))
    assert replacements_for(view, tablet("a b c:F", "a"), {}) == [one]
    assert replacements_for(view, tablet("a b c:F", "a"), {"d": 1}) == []


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
        ("/d/1 /d/1 /d/1 /d/2", {"d": 9}, "adb"),
        ("/d/1 /d/2 /e/1 /e/1", {}, "acb"),
        ("x x y z", {"c": 1, "d": 2}, "acd"),
    ],
)
def test_replicas_are_spread_over_wider_locations_first(places: str, load: dict[str, int], chosen: str) -> None:
    """OP-05. Goal: a data center that fails takes as few replicas of a tablet as possible, then a rack. Method: servers
    in these places, and loads that speak against it; three replicas."""
    hosts = [server(u, location=place) for u, place in zip("abcd", places.split(), strict=True)]
    assert place_tablets(hosts, load, 1, 3) == [sorted(chosen)]
    assert server("a", location="/d/1/2").places == ("/d", "/d/1", "/d/1/2") and server("a").places == ("",)


def naively_placed(
    hosts: list[ServerView], load: dict[str, int], tablets: int, replicas: int
) -> list[list[str]] | None:
    """The servers of each new tablet, all of them compared for each replica; None if there is no room."""
    of_table, total, leaders = Counter[str](), Counter(load), Counter[str]()
    taken: list[ServerView] = []

    def order(s: ServerView) -> tuple[Any, ...]:
        used = [sum(place in other.places for other in taken) for place in s.places]
        return s.avoided, s.nearly_full(), used, of_table[s.uuid], total[s.uuid], s.uuid

    placed = []
    for _ in range(tablets):
        taken.clear()
        for _ in range(replicas):
            fit = [s for s in hosts if s.takes_replicas and s not in taken and s.has_room(total[s.uuid])]
            if not fit:
                return None
            taken.append(min(fit, key=order))
            of_table[taken[-1].uuid] += 1
            total[taken[-1].uuid] += 1
        names = sorted((s.uuid for s in taken), key=lambda u: (leaders[u], u))
        leaders[names[0]] += 1
        placed.append(names)
    return placed


HOSTS = st.lists(
    st.fixed_dictionaries(
        {
            "location": st.sampled_from(["", "/d", "/d/1", "/d/2", "/e/1", "x"]),
            "avoided": st.booleans(),
            "draining": st.sampled_from([False, False, True]),
            "tablets_max": st.sampled_from([0, 0, 1, 3, 9]),
            "disk_bytes_free": st.sampled_from([None, 0, 1 << 40]),
        }
    ),
    min_size=1,
    max_size=8,
)


@given(HOSTS, st.lists(st.integers(0, 5), min_size=8, max_size=8), st.integers(0, 9), st.integers(1, 5))
def test_heaps_place_tablets_where_a_comparison_of_all_servers_does(
    hosts: list[dict[str, Any]], loads: list[int], tablets: int, replicas: int
) -> None:
    """OP-05, CN-03. Goal: each replica goes to the best server by its kind, then its loads. Method: random servers,
    locations, limits and loads, against a comparison of all servers for each replica; the same without room."""
    views = [server(u, **fields) for u, fields in zip("abcdefgh", hosts, strict=False)]
    load = {s.uuid: n for s, n in zip(views, loads, strict=False) if n}
    alive = sum(s.takes_replicas for s in views)
    try:
        placed = place_tablets(views, load, tablets, replicas)
    except Refused:
        assert alive < replicas or naively_placed(views, load, tablets, replicas) is None
    else:
        assert placed == naively_placed(views, load, tablets, replicas)
