"""What `doctor` and `status` look at."""
