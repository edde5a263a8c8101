"""Reports on a cluster for the faces, as plain values: the admin client gathers them, the faces format them."""
