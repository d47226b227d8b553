"""The protocol's messages as text (grammar at the head of each file) and the table of API keys."""
