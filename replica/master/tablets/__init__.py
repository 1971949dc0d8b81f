"""What the masters conclude of each tablet from the catalog and the heartbeats, and what its servers are ordered."""
