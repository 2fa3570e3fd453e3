"""A stand-in for a lakeFS server: the part of its API that lakemark relies on, with its meaning.

Objects are files, all else is one SQLite database, and what was acknowledged survives a crash.
Commit ids, errors and the order of checks are those of lakeFS 1.84. It differs on purpose:

- a new protection rule or action file holds at once (lakeFS: within some seconds),
- commits at the same time wait for each other (lakeFS: some may be refused),
- a tree's id is of our own derivation: equal contents have equal ids, which lakeFS does not promise,
- hooks run when they can refuse something (prepare and pre events), and only those written in Lua;
  what they print goes nowhere,
- one user, whose keys are given at start.

`python -m lakemark.sandbox.lakefs --dir DIR --port PORT` runs it.
"""
