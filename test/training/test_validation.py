"""Validation scores a network as it is used."""

import torch
from torch import nn

from lgc_ros.estimation.two_view import LABEL_THRESHOLD
from lgc_ros.filter.checkpoint import ModelInfo
from lgc_ros.filter.network import NetworkConfig
from training.data.dump import Dump
from training.validation import validate


class OracleNetwork(nn.Module):
    """Logits that follow from the labels of a dump, whose pairs it must get in order."""

    def __init__(self, dump, true, outlier):
        super().__init__()
        self.device_of = nn.Parameter(torch.zeros(1))
        self.labels = iter([dump[i].ys < LABEL_THRESHOLD for i in range(len(dump))])
        self.true, self.outlier = true, outlier

    def forward(self, x):
        labels = torch.from_numpy(next(self.labels))
        return torch.where(labels, self.true, self.outlier)[None]


def test_validation_measures_what_the_network_keeps(dumps):
    dump = Dump(dumps / "good.hdf5")
    info = ModelInfo("any", "sift", NetworkConfig())
    perfect = validate(OracleNetwork(dump, 3.0, -3.0), dump, info, LABEL_THRESHOLD, 100)
    assert perfect.precision == perfect.recall == 1
    blind = validate(OracleNetwork(dump, 3.0, 3.0), dump, info, LABEL_THRESHOLD, 100)
    assert blind.recall == 1
    assert blind.precision < 0.8
    assert perfect.headline > blind.headline
    assert perfect.closed_form > blind.closed_form
    assert perfect.scalars()["map20_8pt"] > blind.scalars()["map20_8pt"]
