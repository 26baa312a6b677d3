"""XML as readable text: known vocabularies, feeds, and records of anything else."""
