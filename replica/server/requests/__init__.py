"""The TabletService: writes, scans, checksums, config changes, creation and deletion, from request to reply."""
