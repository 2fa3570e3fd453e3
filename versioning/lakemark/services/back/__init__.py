"""Going back: restore, resume, roll back."""
