"""Which Saxml the stand-in stands for: the release 1.2.0."""

NAME = 'r1.2.0'
