"""The command line. ``main.py`` is its entry; every command has a module, which is imported when it is called."""
