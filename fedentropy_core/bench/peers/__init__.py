"""Other frameworks beside this one. The scripts `*_peer.py` are for an environment of their own, requirements.txt."""
