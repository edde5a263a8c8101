"""A controller of a KRaft quorum: its replica of the metadata log, its decisions, and the requests it serves."""
