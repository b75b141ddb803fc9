"""What chips send each other."""
