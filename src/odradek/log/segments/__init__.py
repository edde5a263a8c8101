"""The files of one log: segments with their indexes, and how a read finds its bytes."""
