"""Small models of protocols, searched exhaustively: every order of a few steps on two or three nodes."""
