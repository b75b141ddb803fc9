"""The checks of the lessons' exercises: a module for each lesson, and `answers`, which they are written with.

Each check tries an answer with different values on every device and, on the simulator, on several meshes that are not
square, so that a swapped axis or a missing sum cannot pass. There it also reads the call tape: where the work was done,
and how many bytes each chip was given.
"""

from ttkit.exercises import lesson_00, lesson_01, lesson_02, lesson_03, lesson_04, lesson_05, lesson_06, lesson_07, lesson_12

__all__ = ["lesson_00", "lesson_01", "lesson_02", "lesson_03", "lesson_04", "lesson_05", "lesson_06", "lesson_07", "lesson_12"]
