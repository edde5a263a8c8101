"""Records that a broker itself produces to a topic of the cluster: a bounded queue, and what writes it."""
