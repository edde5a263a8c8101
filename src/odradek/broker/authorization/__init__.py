"""The authorizer of a broker: its settings, the ACLs in the metadata store, and their changes."""
