"""Odradek: a Kafka-compatible message engine and stream platform in Python."""

from odradek.version import __version__ as __version__
