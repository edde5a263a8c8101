"""The parts of `odradek demo`: flights in, queries, totals out."""
