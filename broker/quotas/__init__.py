"""Client quotas: their entities, their place in the metadata tree, and the quota that applies to a
client."""
