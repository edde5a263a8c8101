"""Tools that read the files of a stopped broker."""
