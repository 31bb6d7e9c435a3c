"""What a person sees while a program runs: progress bars, and objects in a notebook."""
