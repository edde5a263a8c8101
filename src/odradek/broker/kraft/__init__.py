"""A broker of a KRaft cluster: the metadata log, the registration, and requests to the quorum's controllers."""
