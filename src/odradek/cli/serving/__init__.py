"""Several brokers in one command, and the service manager."""
