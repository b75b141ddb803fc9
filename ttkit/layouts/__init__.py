"""Planning: which layouts fit a machine, what each of them sends, and how fast it trains.

Nothing is allocated. Read `dry_run` (a model's own code on a mesh without values), `costs` (what
its tape gives for a layout: traffic, memory, time), then `places` and `search`, and for the results
`report` and `launching`. `inference` has the cost of inference.
"""
