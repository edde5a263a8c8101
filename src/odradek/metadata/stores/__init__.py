"""Metadata stores: a tree of versioned nodes in SQLite, in ZooKeeper or in memory."""
