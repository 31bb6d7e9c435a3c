"""The `sooner` command: one module for each group of its verbs. `command.py` is the way in."""
