"""How values, functions and classes travel: pickled here, found again elsewhere."""
