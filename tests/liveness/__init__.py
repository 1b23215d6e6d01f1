"""Every connection graph of a small cluster: where a node can reach a quorum, there is soon a leader that stays."""
