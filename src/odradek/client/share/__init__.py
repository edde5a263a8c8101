"""Share groups (KIP-932): consumers that share partitions record by record, and acknowledge each record."""
