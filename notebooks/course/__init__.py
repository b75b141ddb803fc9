"""The exercises, pictures and helpers of the lessons, with one module for each lesson."""
