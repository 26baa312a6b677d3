"""How good and how fast: judged sets, metrics, runs, and the benchmark."""
