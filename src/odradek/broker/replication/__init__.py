"""Replication as this broker takes part in it: fetchers of followers, throttles, proposals for ISRs."""
