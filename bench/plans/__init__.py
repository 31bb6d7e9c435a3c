"""Which rows there are, and which probes a run makes, on which systems and how large."""
