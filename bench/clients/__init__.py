"""Python clients side by side: what a record costs the client process, on both brokers."""
