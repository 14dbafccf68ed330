"""Model files: safetensors with metadata that describes the weights and how to use them.

Loading executes no code from the file. The architecture in the metadata is compared with the
stored tensors before memory is allocated for a network, and a SHA-256 over the content detects
damage. A file that fails a check is refused with the reason.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from lgc_ros.errors import CheckpointError
from lgc_ros.filter.network import CorrespondenceNetwork, NetworkConfig
from lgc_ros.filter.side_information import side_information_error
from lgc_ros.runtime.output_files import write_file

FORMAT = "lgc_ros/1"
CHECKSUM = "sha256"
MODELS_DIR = Path(__file__).parents[1] / "models"
# Tensor types by their safetensors names.
_DTYPES = {torch.float32: "F32", torch.int64: "I64"}


@dataclass(frozen=True)
class ModelInfo:
    """Metadata of a model file.

    Attributes:
        name: short name, as in ``lgc_ros/models``.
        features: feature type the model was trained on, e.g. ``sift``.
        network: the architecture.
        side: names of the side information, in input order; see side_information.py.
        keep_above: a match is kept if its logit is above this value.
        trust_above: a pose is estimated from kept matches with a logit above this value, as long
            as there are enough of them.
        training: free text on data, schedule, seed and date.
        margin: the logit is the log odds of a match, with true matches and outliers balanced,
            minus this margin.
    """

    name: str
    features: str
    network: NetworkConfig
    side: tuple[str, ...] = ()
    keep_above: float = 0.0
    trust_above: float = 0.0
    training: dict = field(default_factory=dict)
    margin: float = 0.0

    def __post_init__(self) -> None:
        if problem := side_information_error(self.side):
            raise ValueError(problem)
        if len(self.side) != self.network.side:
            raise ValueError(
                f"{len(self.side)} kinds of side information are listed, but the network takes "
                f"{self.network.side}"
            )
        for name in ("keep_above", "trust_above", "margin"):
            if not math.isfinite(getattr(self, name)):
                raise ValueError(f"{name} is {getattr(self, name)}, but must be a finite number")
        if not isinstance(self.training, dict):
            raise ValueError(f"training is {self.training!r:.80}, but must be a mapping")


def shipped_models() -> list[str]:
    """Names of the models shipped with the package."""
    return sorted(path.stem for path in MODELS_DIR.glob("*.safetensors"))


def find_model(model: str | Path) -> Path:
    """The file of a shipped model by name, or the given file."""
    path = Path(model)
    if path.is_file():
        return path
    shipped = MODELS_DIR / f"{model}.safetensors"
    if shipped.is_file():
        return shipped
    raise CheckpointError(
        f"model {str(model)!r} does not exist: use one of {', '.join(shipped_models())}, or give "
        "the path of a .safetensors file"
    )


def save_checkpoint(path: Path, network: CorrespondenceNetwork, info: ModelInfo) -> None:
    """Write weights and metadata; the file appears under its name only when complete."""
    metadata = {
        "format": FORMAT,
        "name": info.name,
        "features": info.features,
        "network": json.dumps(info.network.as_dict()),
        "side": json.dumps(list(info.side)),
        "keep_above": repr(info.keep_above),
        "trust_above": repr(info.trust_above),
        "margin": repr(info.margin),
        "training": json.dumps(info.training),
    }
    weights = {
        name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()
    }
    write_file(path, save(weights, {**metadata, CHECKSUM: checksum(metadata, weights)}))


def checksum(metadata: Mapping[str, str], weights: Mapping[str, torch.Tensor]) -> str:
    """SHA-256 over the metadata (without the checksum) and all tensor names, types and values."""
    names = sorted(weights)
    tensors = [[name, str(weights[name].dtype), list(weights[name].shape)] for name in names]
    digest = hashlib.sha256(json.dumps([sorted(metadata.items()), tensors]).encode())
    for name in names:
        digest.update(weights[name].contiguous().numpy().tobytes())
    return digest.hexdigest()


def load_checkpoint(model: str | Path) -> tuple[CorrespondenceNetwork, ModelInfo]:
    """Read a shipped model by name or a model file by path, in evaluation mode on the CPU."""
    path = find_model(model)
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            metadata = file.metadata() or {}
            info = _read_info(path, metadata)
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            layout = {
                name: (part.get_dtype(), tuple(part.get_shape())) for name, part in slices.items()
            }
            _check_layout(path, info.network, layout)
            weights = {name: file.get_tensor(name) for name in layout}
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path} is not a complete safetensors file ({error}): download or train it again"
        ) from error
    _check_content(path, metadata, weights)
    network = CorrespondenceNetwork(info.network)
    network.load_state_dict(weights)
    return network.eval(), info


def _read_info(path: Path, metadata: dict[str, str]) -> ModelInfo:
    if metadata.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} was not written by lgc_ros (its format is {metadata.get('format')!r}, "
            f"expected {FORMAT!r}): use a shipped model or train one"
        )
    try:
        return ModelInfo(
            name=metadata["name"],
            features=metadata["features"],
            network=NetworkConfig(**json.loads(metadata["network"])),
            side=tuple(json.loads(metadata["side"])),
            keep_above=float(metadata["keep_above"]),
            trust_above=float(metadata.get("trust_above", 0.0)),
            margin=float(metadata.get("margin", 0.0)),
            training=json.loads(metadata["training"]),
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path} has invalid metadata ({error!r}): download or train it again"
        ) from error


def _check_layout(
    path: Path, config: NetworkConfig, layout: Mapping[str, tuple[str, tuple[int, ...]]]
) -> None:
    """Compare types and shapes with those of the architecture, without allocating tensors."""
    # Even on the meta device each block takes time, and huge widths overflow.
    values = sum(math.prod(shape) for _, shape in layout.values())
    if config.blocks > len(layout) or config.width > values:
        problems = [
            f"missing: {config.blocks} blocks of width {config.width} need more than the stored "
            f"{len(layout)} tensors with {values} values"
        ]
    else:
        with torch.device("meta"):
            expected = {
                name: (_DTYPES[value.dtype], tuple(value.shape))
                for name, value in CorrespondenceNetwork(config).state_dict().items()
            }
        problems = _differences(expected, layout)
    if problems:
        raise CheckpointError(
            f"the weights in {path} do not match its architecture ({'; '.join(problems)}): "
            "download or train it again"
        )


def _differences(
    expected: Mapping[str, tuple[str, tuple[int, ...]]],
    found: Mapping[str, tuple[str, tuple[int, ...]]],
) -> list[str]:
    both = [(name, *expected[name], *found[name]) for name in expected if name in found]
    kinds = {
        "missing": sorted(expected.keys() - found.keys()),
        "unexpected": sorted(found.keys() - expected.keys()),
        "wrong shape": [
            f"{n} is {has}, not {shape}" for n, _, shape, _, has in both if has != shape
        ],
        "wrong type": [f"{n} is {has}, not {kind}" for n, kind, _, has, _ in both if has != kind],
    }
    return [_shortened(what, names) for what, names in kinds.items() if names]


def _check_content(
    path: Path, metadata: Mapping[str, str], weights: Mapping[str, torch.Tensor]
) -> None:
    """Verify the checksum, and refuse weights that are not finite."""
    if CHECKSUM not in metadata:
        raise CheckpointError(
            f"{path} has no checksum (metadata {CHECKSUM!r}), so damage cannot be detected: "
            "download or train it again"
        )
    signed = {key: value for key, value in metadata.items() if key != CHECKSUM}
    if checksum(signed, weights) != metadata[CHECKSUM]:
        raise CheckpointError(
            f"{path} is damaged: its checksum does not match its content; download or train it "
            "again"
        )
    broken = [name for name, value in weights.items() if not torch.isfinite(value).all()]
    if broken:
        raise CheckpointError(
            f"{path} contains NaN or infinite weights ({_shortened('not finite', broken)}): "
            "train it again"
        )


def _shortened(what: str, names: list[str]) -> str:
    return f"{what}: {', '.join(names[:3])}{' …' if len(names) > 3 else ''}"
