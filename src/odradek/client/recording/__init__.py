"""Recordings of what clients and brokers say to each other: a proxy that makes them, and their replay."""
