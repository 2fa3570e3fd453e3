"""What is wrong, and what must hold."""
