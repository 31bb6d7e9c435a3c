"""The state of a running session, as rows, explanations and text."""
