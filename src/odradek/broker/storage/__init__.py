"""What this broker stores: its partitions, its log directories, and the jobs that look after them."""
