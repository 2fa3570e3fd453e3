"""Which files and links of each framework name the checkpoint it goes on from, and how to set them."""
