"""The leading master's tick, which computes the needed decisions; their sinks; the executor within the master."""
