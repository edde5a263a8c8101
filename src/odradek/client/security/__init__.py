"""TLS and logins of a client's connections."""
