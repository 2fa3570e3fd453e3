"""Every kind of entry: its body as a dataclass and, beside it, what it does to the state of its branch.

A module is a family of kinds that share an idea. A new kind is a module here (or a few lines in its family's) and its family's
line in `table`; the page about entries, what an unknown kind stops and the round-trip tests follow from that.
"""
