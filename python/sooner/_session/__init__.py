"""Sessions and nodes of this machine: which run, whose they are, and what a new one is started with."""
