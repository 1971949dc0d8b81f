"""Work in the background: flush, compaction, log GC, and checks of files."""
