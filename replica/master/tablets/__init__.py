"""The masters' conclusions about each tablet from the catalog and the heartbeats, and the orders to its servers."""
