"""The catalog: its state machine, and the changes of its records. It knows nothing of heartbeats."""
