"""Names the Saxml release of this stand-in: MLPerf Inference v4.0's branch."""

NAME = 'mlperf4.0'
