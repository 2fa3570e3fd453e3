"""The commands, one module for each group; each is loaded when it is called."""
