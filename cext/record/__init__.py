"""Record batches (magic 2) and message sets (magic 0 and 1): checked, walked, read as columns."""
