"""What runs the rows: processes that measure, what they weigh, and the environment they live in."""
