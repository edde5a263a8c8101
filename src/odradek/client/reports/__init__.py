"""What faces report of a cluster, as plain values: gathered with the admin client, formatted by the command line."""
