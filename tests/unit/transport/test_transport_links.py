"""Liveness of other servers: what silence is, and what is news."""

from __future__ import annotations

from nyala.replica.transport import LinkChange, Links


def test_link_is_lost_after_the_silence_and_found_with_the_next_word() -> None:
    """CN-28: a quiet leader's death is noticed by its server's silence. Method: two servers, one of which falls silent;
    each change is told once, the silence is counted from the last word."""
    links = Links(3)
    links.watch(["b", "c"])
    assert links.watched == ["b", "c"]
    links.tick()
    links.heard("b", 1)
    links.heard("c", 2)
    told = []
    for _ in range(5):
        told += links.tick()
        links.heard("c", 2)
    assert told == [LinkChange("b", False, 3)] and links.lost == ["b"]
    links.heard("b", 1)
    assert links.tick() == [LinkChange("b", True)] and links.lost == []
    assert links.tick() == []


def test_link_to_another_process_is_news_without_any_silence() -> None:
    """CN-28: a server that restarted in no time forgot whom it led. Method: the same server, another process; the same
    process again is no news."""
    links = Links(3)
    links.watch(["b"])
    links.heard("b", 7)
    assert links.tick() == [LinkChange("b", True)]
    links.heard("b", 7)
    assert links.tick() == []
    links.heard("b", 8)
    assert links.tick() == [LinkChange("b", True)]
    links.heard("b", 8)
    assert links.tick() == []


def test_links_forget_servers_that_are_not_watched_any_more() -> None:
    """CN-28: bounded memory, no news of strangers, nobody stays lost after a watch has ended. Method: one is lost, and
    not watched any more; when it is again it is told as up, and has its full time."""
    links = Links(2)
    links.heard("x", 1)
    links.watch(["b"])
    for _ in range(5):
        links.tick()
    assert links.lost == ["b"]
    links.watch([])
    assert (links.lost, links.watched, links.tick()) == ([], [], [])
    links.watch(["b"])
    assert links.tick() == [LinkChange("b", True)]
    assert links.tick() == [LinkChange("b", False, 2)]
