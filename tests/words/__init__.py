"""How plainly the pages, docstrings and comments are written: what can be counted of it."""
