"""Lesson 27, several hosts: its exercise."""

from ttkit.lessons.exercises import Exercise

# With 4 hosts the network takes 3.1 s and the chips 6.0 s; with 8 hosts it is 3.6 s and 3.0 s.
Exercise(
    "27.hosts",
    asks="the number of hosts",
    reference=lambda: 4,
    mistakes={
        "in a ring of n hosts each sends 2 (n - 1) / n of the gradients": lambda: 8,
        "50 Gbit/s are 50 / 8 GB/s": lambda: 16,
    },
    praise="with twice as many hosts the chips would wait for the network",
    hints=[
        "How many bytes does each of 2 hosts send, and how many seconds does its network need?",
        "For n hosts the chips need step(32 // n).times.total seconds. Print both times.",
        "The network needs 2 * (n - 1) / n * gradients / (50e9 / 8) seconds.",
    ],
)
