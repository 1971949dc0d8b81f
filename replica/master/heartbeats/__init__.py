"""Tablet servers' heartbeats: which senders count, which of their reports are believed, and what the masters keep."""
