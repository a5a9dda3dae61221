"""A source becomes a fragment: headers, compilers, symbols."""
