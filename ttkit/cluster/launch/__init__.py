"""Ranks of a program: mpirun's command, its run, other hosts by ssh, what runs in a rank."""
