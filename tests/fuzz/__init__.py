"""Fuzzers: hostile bytes for everything that takes bytes from outside, from a seed, with what must hold after each."""
