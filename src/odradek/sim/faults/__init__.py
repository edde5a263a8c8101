"""What goes wrong in a simulated world, how often and how."""
