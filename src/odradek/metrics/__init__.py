"""Counters, histograms, their declarations and their text form. Nothing here does I/O or reads a clock."""
