"""Simulated hosts and what they get as ports: a loop with virtual time, a network, disks, a metadata store."""
