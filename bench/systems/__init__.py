"""The systems that are measured: how each is started, and the programs that run there."""
