"""Planning: which layouts fit a machine, what each of them sends, and how fast it trains.

Nothing is allocated. Read `dry_run` (a model's own code on a mesh without values), `step`,
`memory`, `traffic` and `times` (what its tape says for a layout), then `places` and `search`; and
`inference`, which stands alone, with `serving`."""
