"""Model files: safetensors with metadata that says what the weights are and how they are used.

Nothing in such a file is executed. A file that does not fit is refused with the reason.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from lgc_ros.errors import CheckpointError
from lgc_ros.filter.network import CorrespondenceNetwork, NetworkConfig
from lgc_ros.filter.side_information import side_information_error

FORMAT = "lgc_ros/1"
MODELS_DIR = Path(__file__).parents[1] / "models"


@dataclass(frozen=True)
class ModelInfo:
    """What a model file says about itself.

    Attributes:
        name: short name, as in ``lgc_ros/models``.
        features: kind of keypoints it was trained on, e.g. ``sift``.
        network: the architecture.
        side: names of the side information, in input order; see side_information.py.
        keep_above: a match is kept when its logit is above this value.
        trust_above: a pose is estimated from kept matches with a logit above this value, as long
            as there are enough of them.
        training: free text on data, schedule, seed and date.
    """

    name: str
    features: str
    network: NetworkConfig
    side: tuple[str, ...] = ()
    keep_above: float = 0.0
    trust_above: float = 0.0
    training: dict = field(default_factory=dict)

    def __post_init__(self) -> None:
        if problem := side_information_error(self.side):
            raise ValueError(problem)
        if len(self.side) != self.network.side:
            raise ValueError(
                f"{len(self.side)} kinds of side information named, the network takes "
                f"{self.network.side}"
            )


def shipped_models() -> list[str]:
    """Names of the models that come with the package."""
    return sorted(path.stem for path in MODELS_DIR.glob("*.safetensors"))


def find_model(model: str | Path) -> Path:
    """The file of a shipped model by name, or the given file itself."""
    path = Path(model)
    if path.is_file():
        return path
    shipped = MODELS_DIR / f"{model}.safetensors"
    if shipped.is_file():
        return shipped
    raise CheckpointError(
        f"there is no model {str(model)!r}: name one of {', '.join(shipped_models())}, or give "
        "the path of a .safetensors file"
    )


def save_checkpoint(path: Path, network: CorrespondenceNetwork, info: ModelInfo) -> None:
    """Write weights and metadata; the file appears under its name only when it is whole."""
    metadata = {
        "format": FORMAT,
        "name": info.name,
        "features": info.features,
        "network": json.dumps(info.network.as_dict()),
        "side": json.dumps(list(info.side)),
        "keep_above": repr(info.keep_above),
        "trust_above": repr(info.trust_above),
        "training": json.dumps(info.training),
    }
    weights = {
        name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()
    }
    partial = path.with_suffix(".partial")
    save_file(weights, partial, metadata=metadata)
    partial.replace(path)


def load_checkpoint(model: str | Path) -> tuple[CorrespondenceNetwork, ModelInfo]:
    """Read a shipped model by name or a model file by path, in evaluation mode on the CPU."""
    path = find_model(model)
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            metadata = file.metadata() or {}
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path} is not a whole safetensors file ({error}): download or train it again"
        ) from error
    info = _read_info(path, metadata)
    network = CorrespondenceNetwork(info.network)
    _check_weights(path, network, weights)
    network.load_state_dict(weights)
    return network.eval(), info


def _read_info(path: Path, metadata: dict[str, str]) -> ModelInfo:
    if metadata.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} was not written by lgc_ros (its format is {metadata.get('format')!r}, "
            f"expected {FORMAT!r}): use a model of lgc_ros/models or train one"
        )
    try:
        return ModelInfo(
            name=metadata["name"],
            features=metadata["features"],
            network=NetworkConfig(**json.loads(metadata["network"])),
            side=tuple(json.loads(metadata["side"])),
            keep_above=float(metadata["keep_above"]),
            trust_above=float(metadata.get("trust_above", 0.0)),
            training=json.loads(metadata["training"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path} has broken metadata ({error!r}): train or download it again"
        ) from error


def _check_weights(
    path: Path, network: CorrespondenceNetwork, weights: dict[str, torch.Tensor]
) -> None:
    expected = network.state_dict()
    missing = sorted(expected.keys() - weights.keys())
    extra = sorted(weights.keys() - expected.keys())
    wrong = [
        f"{name} is {tuple(weights[name].shape)}, not {tuple(value.shape)}"
        for name, value in expected.items()
        if name in weights and weights[name].shape != value.shape
    ]
    broken = [name for name, value in weights.items() if not torch.isfinite(value).all()]
    problems = [
        f"{what}: {', '.join(names[:3])}{' …' if len(names) > 3 else ''}"
        for what, names in (
            ("missing", missing),
            ("unexpected", extra),
            ("wrong shape", wrong),
            ("not finite", broken),
        )
        if names
    ]
    if problems:
        raise CheckpointError(
            f"the weights in {path} do not fit the architecture it names ({'; '.join(problems)})"
        )
