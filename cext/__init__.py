"""Compiled modules: the codec, the log and the network, without the GIL where it is hot."""
