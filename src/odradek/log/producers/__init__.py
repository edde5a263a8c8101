"""What a log knows of its producers: sequences, epochs and open transactions."""
