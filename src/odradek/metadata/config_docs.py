"""Documentation of configurations, by name, for those who ask DescribeConfigs for it."""

DOCUMENTATION: dict[str, str] = {}
