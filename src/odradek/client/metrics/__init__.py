"""What the clients measure of themselves, under the names of Kafka's Java clients."""
