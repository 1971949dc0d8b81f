"""The TabletService: writes, scans, checksums, consensus messages and orders, from request to reply."""
