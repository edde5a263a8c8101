"""Records in the console: reading, masks, decoding, search."""
