"""A quorum of Raft machines in virtual time, on simulated disks and a simulated network."""
