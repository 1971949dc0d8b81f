"""The leading master's tick: which decisions are needed, their sinks, and the executor within the master."""
