"""What the larger commands do, apart from their options."""
