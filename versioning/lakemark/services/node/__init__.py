"""What a node does by itself, over and over."""
