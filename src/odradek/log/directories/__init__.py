"""The log directories of a broker: what lies where, checkpoints, syncs, moves and failures."""
