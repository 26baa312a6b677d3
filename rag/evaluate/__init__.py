"""How good retrieval is: judged sets, metrics, runs and their comparison."""
