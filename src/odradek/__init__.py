"""Odradek: a Kafka-compatible message engine and stream platform in Python."""

from odradek.version import __version__

__all__ = ["__version__"]
