"""Logins of clients and brokers: the SASL listeners, and what a connection may do before it is authenticated."""
