"""The partition table: leaders, high watermarks, purgatory, group commit."""
