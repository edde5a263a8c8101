"""Kafka's Raft (KIP-595, KIP-630, KIP-996) as a pure state machine: events and times in, effects out."""
