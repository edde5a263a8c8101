"""The one place that states Odradek's version; the build reads it from here."""

__version__ = "0.2.0.dev0"
