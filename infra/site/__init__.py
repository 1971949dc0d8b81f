"""The documentation site of a clone: `make docs`."""
