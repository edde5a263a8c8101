"""KRaft: records of the metadata log and its files as bytes and back, and state machines of a broker. Pure."""
