"""Scores against ground truth, for image pairs and for trajectories.

Pairs: `pairs` reads pair lists, `pair_runner.evaluate_pairs` runs methods on them and
`pair_metrics` scores the results.
Trajectories: `runner.run_odometry` runs odometry over a source, `results.write_run` writes its
results, `trajectory_metrics.evaluate_trajectory` computes ATE, RPE and drift with evo.
Speed: `benchmark.run_bench` times every stage; `benchmark_cases` are the calls it times.
"""
