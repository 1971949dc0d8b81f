"""Tablet servers' heartbeats: which senders count, which of their reports are believed, and the state that is kept of
them."""
