"""Consuming: positions, fetches and the records that programs see, one by one, in batches or in columns."""
