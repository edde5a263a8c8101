"""All configurations of brokers, topics and groups: definitions, documentation, effects."""
