"""Rules that families share: names, numbers, sets of files, roles."""
