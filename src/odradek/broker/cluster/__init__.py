"""The part of this broker in its cluster: membership, the controller, the cluster image, connections to brokers."""
