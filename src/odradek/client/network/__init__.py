"""Connections to brokers: requests in flight, metadata, coordinators, and repeated failures in the log."""
