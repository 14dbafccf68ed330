"""The cases of the benchmark: alternative implementations of the same work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import torch
from torch import Tensor, nn

from lgc_ros.errors import DatasetError
from lgc_ros.estimation.two_view import RelativePoseSolver, true_matches
from lgc_ros.evaluation.pairs import read_pairs
from lgc_ros.features.base import Features, make_extractor
from lgc_ros.filter.backends.engines import MODULES, make_engine, missing_modules
from lgc_ros.filter.checkpoint import load_checkpoint
from lgc_ros.filter.network import COORDINATES, CorrespondenceNetwork, Perceptron
from lgc_ros.geometry.camera import Camera
from lgc_ros.images.frame import Frame, read_image
from lgc_ros.matching.correspondences import Correspondences, correspond, match
from lgc_ros.odometry.options import MATCH
from lgc_ros.odometry.prefetch import prefetch_features
from lgc_ros.odometry.profiles import load_profile
from lgc_ros.odometry.visual_odometry import VisualOdometry
from lgc_ros.runtime.threads import thread_limit
from lgc_ros.sources.synthetic import SyntheticSource

MATCHES = (500, 1000, 2000, 4000)
FULL = 2000
# Share of true matches of a pair that is hard, but solvable.
HARD_SHARE = 0.05, 0.25
HARD_GAPS = (12, 16, 20, 24, 28, 32)  # frames between the views of rendered pairs

Cases = dict[str, Callable[[], object]]


class PlainNetwork(nn.Module):
    """The network as written in the paper: 1x1 convolutions over (1, C, N), eager mode."""

    def __init__(self, network: CorrespondenceNetwork) -> None:
        super().__init__()
        self.input, self.output = _convolution(network.input), _convolution(network.output)
        self.blocks = nn.ModuleList(
            nn.Sequential(*_plain_layers(block.first), *_plain_layers(block.second))
            for block in network.blocks()
        )
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        x = self.input(x)
        for block in self.blocks:
            x = x + block(x)
        return self.output(x)[:, 0]


class PlainContextNorm(nn.Module):
    """Equations 4 and 5 of the paper."""

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(dim=2, keepdim=True)
        variance = x.var(dim=2, keepdim=True, unbiased=False)
        return (x - mean) / torch.sqrt(variance + self.eps)


def _plain_layers(perceptron: Perceptron) -> list[nn.Module]:
    norm = nn.BatchNorm1d(len(perceptron.norm.weight))
    norm.load_state_dict(perceptron.norm.state_dict(), strict=False)
    return [
        _convolution(perceptron.linear),
        PlainContextNorm(perceptron.norm.eps),
        norm,
        nn.ReLU(),
    ]


def _convolution(linear: nn.Linear) -> nn.Conv1d:
    convolution = nn.Conv1d(linear.in_features, linear.out_features, 1)
    state = {"weight": linear.weight[:, :, None], "bias": linear.bias}
    convolution.load_state_dict(state)
    return convolution


def filter_cases(device: str) -> Cases:
    """Every engine by number of matches, the plain network, and its matrix products alone."""
    network, info = load_checkpoint("sift")
    channels = COORDINATES + info.network.side
    rows = np.random.default_rng(0).uniform(-0.5, 0.5, (max(MATCHES), channels))
    rows = rows.astype(np.float32)
    plain, tensor = PlainNetwork(network), torch.from_numpy(rows[:FULL].T[None].copy())
    # OpenMP threads keep spinning for a while: engines that use them come before those with one.
    names = ("torch", *MODULES)
    engines = {
        name: make_engine(name, network, info, device)
        for name in names
        if not missing_modules(name)
    }
    engines["default"] = make_engine("auto", network, info, device)
    plain_torch = torch.inference_mode()(lambda: plain(tensor))
    sweep = {
        f"{name} {count}": lambda run=engine.run, count=count: run(rows[:count])
        for count in MATCHES
        for name, engine in engines.items()
    }
    return {"plain torch": plain_torch, **_products(network), **sweep}


def _products(network: CorrespondenceNetwork) -> Cases:
    """The matrix products of the network alone, by layout and engine."""
    weights = [layer.linear.weight.detach() for layer in network.perceptrons()]
    width = network.config.width
    rows, columns = torch.rand(FULL, width), torch.rand(width, FULL)
    rows_out, columns_out = torch.empty_like(rows), torch.empty_like(columns)

    def by_rows() -> None:
        for weight in weights:
            torch.mm(rows, weight.T, out=rows_out)

    def by_columns() -> None:
        for weight in weights:
            torch.mm(weight, columns, out=columns_out)

    cases: Cases = {"gemm torch rows": by_rows, "gemm torch cols": by_columns}
    if not missing_modules("openvino"):
        cases["gemm openvino"] = _openvino_products(weights, columns.numpy())
    return cases


def _openvino_products(weights: Sequence[torch.Tensor], columns: np.ndarray) -> Callable:
    import openvino
    from openvino import opset8

    x = opset8.parameter([weights[0].shape[1], -1], np.float32)
    product = x
    for weight in weights:
        # Orthogonal, so that the chain neither overflows nor produces slow denormal numbers.
        rotation = torch.linalg.qr(weight)[0].numpy()
        product = opset8.matmul(opset8.constant(rotation), product, False, False)
    settings = {
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
    }
    model = openvino.Model([product], [x], "products")
    request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
    return lambda: request.infer([columns], share_inputs=True, share_outputs=True)


def extractor_cases(image: np.ndarray, model: Path) -> Cases:
    """SIFT and the learned extractor in an ONNX file."""
    extractors = {
        "sift": make_extractor("sift", FULL),
        "learned": make_extractor("learned", FULL, model=model),
    }
    return {name: partial(extract, image) for name, extract in extractors.items()}


def matcher_cases(features0: Features, features1: Features) -> Cases:
    """OpenCV's brute-force matcher and ours."""
    brute_force = cv2.BFMatcher(cv2.NORM_L2)
    return {
        "brute force": lambda: brute_force.knnMatch(
            features0.descriptors, features1.descriptors, k=2
        ),
        "ours": lambda: match(features0, features1),
    }


def solver_cases(pairs: Sequence[Correspondences], device: str) -> Cases:
    """RANSAC on all matches of each pair, and the filter followed by its estimator."""
    methods = {
        "ransac": RelativePoseSolver("ransac"),
        "cn": RelativePoseSolver("cn", device=device),
    }
    return {
        f"{name} {index}": partial(solve, pair)
        for index, pair in enumerate(pairs)
        for name, solve in methods.items()
    }


def rendered_pairs(source: SyntheticSource) -> Iterator[Correspondences]:
    """Rendered views so far apart that few of their matches are true."""
    extract = make_extractor("sift", FULL)
    features = {index: extract(source[index].image) for index in (0, *HARD_GAPS)}
    for gap in HARD_GAPS:
        pair = _matched(features[0], features[gap], source.camera, source.camera)
        T_10 = np.linalg.inv(source.T_wc(gap)) @ source.T_wc(0)
        if _is_hard(pair, T_10[:3, :3], T_10[:3, 3]):
            yield pair


def real_pairs(folder: Path) -> Iterator[Correspondences]:
    """Pairs of a dataset with ground truth of which few matches are true."""
    extract = make_extractor("sift", FULL)
    found = False
    for pair in read_pairs(folder / "pairs.txt"):
        if pair.turns0 or pair.turns1:
            continue
        images = [read_image(folder / "images" / name) for name in (pair.name0, pair.name1)]
        cameras = [
            Camera.from_K(K, image.shape[1], image.shape[0])
            for K, image in zip((pair.K0, pair.K1), images, strict=True)
        ]
        features0, features1 = map(extract, images)
        matched = _matched(features0, features1, *cameras)
        if _is_hard(matched, pair.R_10, pair.t_10):
            found = True
            yield matched
    if not found:
        raise DatasetError(
            f"{folder} has no pair with 5 to 25 % true matches: give a set with wider baselines"
        )


def _matched(
    features0: Features, features1: Features, camera0: Camera, camera1: Camera
) -> Correspondences:
    return correspond(features0, features1, match(features0, features1), camera0, camera1)


def _is_hard(pair: Correspondences, R_10: np.ndarray, t_10: np.ndarray) -> bool:
    low, high = HARD_SHARE
    return low <= true_matches(pair, R_10, t_10).mean() <= high


def odometry_cases(frames: Sequence[Frame], device: str) -> Cases:
    """Whole sequences: feature extraction alone, odometry by profile, and pipelined matching."""
    with thread_limit(1):
        pipelined = VisualOdometry(load_profile("default", {"device": device, "tracking": MATCH}))
    by_profile = {
        profile: VisualOdometry(load_profile(profile, {"device": device}))
        for profile in ("default", "fast")
    }

    def extract() -> None:
        for frame in frames:
            pipelined.extract(frame.image)

    def match() -> None:
        pipelined.reset()
        for frame, features in prefetch_features(frames, pipelined.extract):
            pipelined.process(frame, None, features)

    def run(odometry: VisualOdometry) -> None:
        odometry.reset()
        for frame in frames:
            odometry.process(frame)

    cases = {name: partial(run, odometry) for name, odometry in by_profile.items()}
    return {"extraction": extract, "match": match, **cases}
