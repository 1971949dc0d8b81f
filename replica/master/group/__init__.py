"""The masters' Raft group: how it is formed, joined, copied and changed."""
