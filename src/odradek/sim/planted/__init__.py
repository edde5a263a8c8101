"""Bugs that are planted on purpose, to prove that the search finds them; the wheel does not contain them."""
