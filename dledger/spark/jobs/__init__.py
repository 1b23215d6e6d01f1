"""What ``dledger spark`` does, as functions: each takes a session and says in a dictionary what it found."""
