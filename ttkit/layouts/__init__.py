"""Planning: which layouts fit a machine, what each of them sends, and how fast it trains.

Nothing is opened or allocated. Read `shapes` (ttnn without values), `step` (a model's own code,
run on them), `memory`, `traffic` and `times` (what it says for a layout), then `search`; and
`inference`, which stands alone."""
