"""The rows: what is measured, one module for each family."""
