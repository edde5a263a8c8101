"""The way to the disk for writes that the event loop must not wait for, and plans of what to sync."""
