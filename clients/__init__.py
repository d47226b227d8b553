"""The old-generation client APIs in Python."""
