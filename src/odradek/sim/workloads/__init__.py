"""What simulated clients and administrators do."""
