"""KRaft's files: records of the metadata log, control records, checkpoints and `quorum-state`, as bytes and back."""
