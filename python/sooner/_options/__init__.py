"""Options of tasks and actors: what they may be, what they mean, and what a callable takes."""
