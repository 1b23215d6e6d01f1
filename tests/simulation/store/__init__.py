"""The store of a simulated cluster: its nodes, its clients, and the truth that all of them are held against."""
