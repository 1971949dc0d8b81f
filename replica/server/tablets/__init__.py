"""The tablets of this server: found, opened, created, fed with messages and ticks, deleted."""
