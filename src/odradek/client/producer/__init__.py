"""Producing: records wait in batches, partitioned and numbered, until the sender has delivered them; transactions."""
