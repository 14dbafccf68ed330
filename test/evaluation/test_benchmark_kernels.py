"""Every hand-written kernel is measured against a library."""

from lgc_ros.evaluation.benchmark_kernels import kernel_speedups


def test_every_kernel_is_compared_with_at_least_one_library():
    speedups = kernel_speedups(rounds=2)
    assert speedups
    for by_library in speedups.values():
        assert by_library
        for speedup in by_library.values():
            assert 0 < speedup["p5"] <= speedup["median"] <= speedup["p95"]
