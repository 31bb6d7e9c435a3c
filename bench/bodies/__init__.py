"""What tasks and actors of the rows do: one module for each family of rows."""
