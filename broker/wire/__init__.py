"""The wire: schemas, headers, error codes and the codecs inside a batch. I/O is elsewhere."""
