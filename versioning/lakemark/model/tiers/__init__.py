"""Which replica stays where, and what retention keeps."""
