"""Errors on their way between processes: packed, traced, explained, and raised again."""
