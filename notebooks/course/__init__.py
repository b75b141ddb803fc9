"""What the lessons have of their own: exercises, pictures and helpers, a module a lesson."""
