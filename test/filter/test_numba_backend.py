"""The compiled network for any number of matches and threads, and any vector width."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from lgc_ros.filter.backends.numba_backend import (
    COLUMNS,
    MIN_PANELS_PER_THREAD,
    CompiledNetwork,
)
from lgc_ros.filter.checkpoint import load_checkpoint

# Computes logits without some of the vector instructions of this CPU.
WITH_SHORTER_VECTORS = """
import sys
import numpy as np
from llvmlite import binding

features = binding.get_host_cpu_features()
for name in features:
    if name.startswith(sys.argv[1]):
        features[name] = False
binding.get_host_cpu_features = lambda: features

from lgc_ros.filter.checkpoint import load_checkpoint
from lgc_ros.filter.backends.numba_backend import CompiledNetwork
from lgc_ros.filter.backends.numba_kernels import LANES

assert LANES <= int(sys.argv[2]), LANES
network, _ = load_checkpoint("sift")
np.save(sys.argv[4], CompiledNetwork(network, threads=2)(np.load(sys.argv[3])))
"""


@pytest.fixture(scope="module")
def network():
    return load_checkpoint("sift")[0]


def rows_of(count, network):
    rng = np.random.default_rng(count)
    return rng.uniform(-0.6, 0.6, (count, 4 + network.config.side)).astype(np.float32)


def exact(rows):
    """Logits in double precision."""
    double = load_checkpoint("sift")[0].double()
    with torch.inference_mode():
        return double(torch.from_numpy(rows).double()[None])[0].numpy()


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(
    "count", [COLUMNS - 1, COLUMNS, COLUMNS + 1, 3 * MIN_PANELS_PER_THREAD * COLUMNS + 1]
)
def test_logits_are_exact_for_full_and_partial_panels_with_and_without_threads(
    network, threads, count
):
    rows = rows_of(count, network)
    logits = CompiledNetwork(network, threads)(rows)
    assert logits == pytest.approx(exact(rows), abs=5e-5)


@pytest.mark.parametrize("threads", [1, 2])
def test_products_alone_equal_the_products_of_the_layers(network, threads):
    width = network.config.width
    panels = np.random.default_rng(0).random((5, width, COLUMNS), np.float32)
    out = np.empty_like(panels)
    CompiledNetwork(network, threads).products_alone(panels, out)
    last = list(network.perceptrons())[-1].linear.weight.detach().numpy()
    np.testing.assert_allclose(out, last @ panels, atol=1e-4)


def test_result_is_deterministic_for_a_number_of_threads(network):
    run, rows = CompiledNetwork(network, 2), rows_of(2000, network)
    first = run(rows)
    assert all(run(rows).tobytes() == first.tobytes() for _ in range(20))


def test_concurrent_calls_do_not_mix_their_pairs(network):
    run, pairs = CompiledNetwork(network, 3), [rows_of(count, network) for count in (600, 900)]
    alone = [run(pair) for pair in pairs]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(run, pairs * 20))
    assert all(np.array_equal(*both) for both in zip(together, alone * 20, strict=True))


def test_rows_may_be_read_only_and_not_contiguous(network):
    run, rows = CompiledNetwork(network), rows_of(300, network)
    turned = np.asfortranarray(rows).astype(np.float64)
    turned.flags.writeable = False
    assert np.array_equal(run(turned), run(rows))


def test_matches_far_from_the_origin_do_not_lose_precision(network):
    """Variances are sums of squares about a mean, not differences of large numbers."""
    rows = rows_of(1000, network)
    rows[:, :4] = 0.6 + 0.001 * rows[:, :4]
    assert CompiledNetwork(network, 2)(rows) == pytest.approx(exact(rows), abs=1e-3)


@pytest.mark.parametrize(("without", "lanes"), [("avx512", 8), ("avx", 4)])
def test_shorter_vectors_give_the_same_logits(network, without, lanes, tmp_path):
    rows = rows_of(1000, network)
    np.save(tmp_path / "rows.npy", rows)
    arguments = [without, str(lanes), tmp_path / "rows.npy", tmp_path / "logits.npy"]
    subprocess.run(
        [sys.executable, "-c", WITH_SHORTER_VECTORS, *map(str, arguments)],
        check=True,
        env={"NUMBA_CACHE_DIR": str(tmp_path)},
    )
    logits = np.load(tmp_path / "logits.npy")
    assert logits == pytest.approx(CompiledNetwork(network)(rows), abs=5e-5)
