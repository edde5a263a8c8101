"""Membership in consumer groups by both protocols: assignment, rebalances, and partitions given and lost."""
