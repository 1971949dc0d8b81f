"""Liveness of other servers: what counts as silence, and what as a sign of life."""

from __future__ import annotations

from nyala.replica.transport import LivenessChange, PeerLiveness


def test_server_is_lost_after_the_silence_and_found_with_the_next_word() -> None:
    """CN-28. Goal: a server counts as lost after a silence, and as found with its next message. Method: two servers,
    one of which falls silent; each change is told once, the silence is counted from the last word."""
    liveness = PeerLiveness(3)
    liveness.watch(["b", "c"])
    assert liveness.watched == ["b", "c"]
    liveness.tick()
    liveness.heard("b", 1)
    liveness.heard("c", 2)
    told = []
    for _ in range(5):
        told += liveness.tick()
        liveness.heard("c", 2)
    assert told == [LivenessChange("b", False, 3)] and liveness.silent == ["b"]
    liveness.heard("b", 1)
    assert liveness.tick() == [LivenessChange("b", True)] and liveness.silent == []
    assert liveness.tick() == []


def test_another_process_of_a_server_is_told_without_any_silence() -> None:
    """CN-28. Goal: a restart of a server is reported without any silence, because the new process does not know its
    leader. Method: the same server, another process; the same process again is no news."""
    liveness = PeerLiveness(3)
    liveness.watch(["b"])
    liveness.heard("b", 7)
    assert liveness.tick() == [LivenessChange("b", True)]
    liveness.heard("b", 7)
    assert liveness.tick() == []
    liveness.heard("b", 8)
    assert liveness.tick() == [LivenessChange("b", True)]
    liveness.heard("b", 8)
    assert liveness.tick() == []


def test_servers_that_are_not_watched_any_more_are_forgotten() -> None:
    """CN-28. Goal: servers that are no longer watched are forgotten. Method: one is lost, and not watched any more;
    when it is again it is told as up, and has its full time."""
    liveness = PeerLiveness(2)
    liveness.heard("x", 1)
    liveness.watch(["b"])
    for _ in range(5):
        liveness.tick()
    assert liveness.silent == ["b"]
    liveness.watch([])
    assert (liveness.silent, liveness.watched, liveness.tick()) == ([], [], [])
    liveness.watch(["b"])
    assert liveness.tick() == [LivenessChange("b", True)]
    assert liveness.tick() == [LivenessChange("b", False, 2)]
