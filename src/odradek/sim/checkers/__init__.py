"""What must hold of a history, of replicas and of the metadata store."""
