"""Each lesson's own exercises, pictures and helpers: one module a lesson."""
