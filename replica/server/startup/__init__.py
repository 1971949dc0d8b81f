"""What a start needs to know: what the directory promised, which code runs, which entry a replay is at."""
