"""State machines of SASL mechanisms for brokers and clients, without I/O, clock or randomness."""
