"""The audit topic of a broker: a bounded queue of events, and what writes it to the cluster."""
