"""What a running session tells about itself, as rows, explanations and text."""
