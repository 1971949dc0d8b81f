"""Heartbeats to all masters: reports out, orders in."""
