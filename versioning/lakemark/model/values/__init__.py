"""Values that everything else is made of, as bytes and as text."""
