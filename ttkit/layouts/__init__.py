"""Planning: which layouts fit a machine, what each of them sends, and how fast it trains.

Nothing is opened or allocated. Read `shapes` (ttnn without values), `dry_run` (a model's own code,
run on them), `step`, `memory`, `traffic` and `times` (what that says for a layout), then `places`
and `search`; and `inference`, which stands alone, with `serving`."""
