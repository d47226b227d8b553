"""Client quotas: whom they are for, where they are kept, and which one counts for a client."""
