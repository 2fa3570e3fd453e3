"""Real services for trying lakemark on one machine, all on loopback addresses and for no other use."""
