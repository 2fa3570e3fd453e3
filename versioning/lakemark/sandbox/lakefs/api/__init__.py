"""The stand-in's HTTP: addresses, requests, pages of lists."""
