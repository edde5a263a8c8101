"""The audit topic of a broker: its events wait in a bounded queue until they are written to the cluster."""
