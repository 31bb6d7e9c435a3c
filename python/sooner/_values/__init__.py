"""How values, functions and classes travel: pickled in one process, found or made again in another."""
