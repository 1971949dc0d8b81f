"""Tablet copies into this server and out of it, and the jobs that bring witnesses their data."""
