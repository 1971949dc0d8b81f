"""The leading master's tick: what is needed, who is told, and the executor within the master."""
