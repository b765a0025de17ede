"""Which Saxml the stand-in stands for: the branch of MLPerf Inference v4.0."""

NAME = 'mlperf4.0'
