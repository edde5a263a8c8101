"""kcat's options and output."""
