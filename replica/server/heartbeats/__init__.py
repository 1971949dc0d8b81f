"""Heartbeats to all masters: this server sends reports, and carries out the orders in the replies."""
