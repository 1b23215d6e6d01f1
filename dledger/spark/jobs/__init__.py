"""The jobs of ``dledger spark``, as functions: each takes a session and returns its findings in a dictionary."""
