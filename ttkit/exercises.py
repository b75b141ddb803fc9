"""The checks of the lessons' exercises, in the order of the lessons."""

from __future__ import annotations
