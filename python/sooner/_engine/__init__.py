"""What runs around user code in drivers and workers, most of it called by the engine."""
