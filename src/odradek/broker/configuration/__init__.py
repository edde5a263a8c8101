"""The configuration of a broker: read from properties, checked, described."""
