"""Services of the broker that handlers use, as protocols."""
