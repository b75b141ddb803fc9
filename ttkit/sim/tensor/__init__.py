"""What a tensor is: types, places, values, and how it is cut over a mesh."""
