"""A simulated quorum of KRaft controllers: a small model of Raft around the real decisions of `RecordController`."""
