"""The display while a program runs: progress bars, and objects in a notebook."""
