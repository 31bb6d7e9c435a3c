"""What a run has found, as a table, a page and a picture."""
