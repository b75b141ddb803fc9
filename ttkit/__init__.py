"""ttkit: learn and try distributed programming on Tenstorrent device meshes, with or without a card."""
