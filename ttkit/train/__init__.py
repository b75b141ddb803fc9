"""Training on meshes."""
