"""Names the Saxml release of this stand-in: the release 1.2.0."""

NAME = 'r1.2.0'
