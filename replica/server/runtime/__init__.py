"""The process: its threads, its loop, its memory, its open files, its channels to other servers."""
