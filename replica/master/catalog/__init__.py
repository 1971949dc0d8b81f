"""The catalog: its state machine, and the changes of its records. It imports nothing of heartbeats."""
