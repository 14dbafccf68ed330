"""Scores against ground truth: image pairs, trajectories, runs over a source, benchmarks."""
