"""The partition table: who leads what, high watermarks, purgatory, group commit."""
