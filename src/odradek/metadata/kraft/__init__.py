"""A cluster image from the records of KRaft's metadata log, and the records that lead from one image to another."""
