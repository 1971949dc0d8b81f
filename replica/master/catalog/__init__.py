"""The catalog: its state machine, and the changes of its records. It does not import the heartbeats package."""
