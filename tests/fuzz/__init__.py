"""Fuzzers: hostile bytes, drawn from a seed, for everything that reads bytes from outside, and the checks after
each."""
