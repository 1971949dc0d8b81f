"""Load on real processes: many clients, dropped scans, tables that come and go, long rows, versions; and no leak."""
