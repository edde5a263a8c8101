"""Clients' connections: listening sockets, frames in and answers out, and the way of a request to its handler."""
