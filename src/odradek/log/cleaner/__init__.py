"""Compaction: which log is dirtiest, which records it keeps, and the rewrite of its segments."""
