"""Sessions and nodes of this machine: which there are, whose they are, and what a new one is started with."""
