"""Records as text: lines of input, formats of output, offsets and times as people write them."""
