"""Parameters, layers, and the models made of them."""
