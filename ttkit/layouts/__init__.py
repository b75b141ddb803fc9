"""Planning: which layouts fit a machine, what each of them sends, and how fast it trains.

Planning allocates no tensors. Read the modules in this order: `passes` (it runs a model's own code
on a mesh without values), `dry_run` (what a chip does in a step, from these runs), `costs`
(traffic, memory and time of a layout), `places` and `search`, then `report` and `launching` for the
results. `inference` has the cost of inference.
"""
