"""Tablet copies into this server and out of it, and witnesses that they turn into replicas with data."""
