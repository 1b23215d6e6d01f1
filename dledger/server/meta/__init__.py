"""The store on the group `meta`, as one node has it: applied here, written by its leader, asked by everybody."""
