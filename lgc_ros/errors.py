"""Errors that a user can solve: every message names the cause and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """End of a message about an unknown name: the closest known one, or `otherwise`, or all."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"known are {', '.join(known)}" if otherwise is None else otherwise


class LgcError(Exception):
    """Base of all errors shown to the user without a traceback."""


class CameraError(LgcError):
    """The camera model is missing, not calibrated, or does not fit the image."""


class ImageError(LgcError):
    """An image is missing or cannot be decoded."""


class FeatureError(LgcError):
    """Keypoints cannot be extracted or read."""


class MatchError(LgcError):
    """Two sets of features cannot be matched."""


class CheckpointError(LgcError):
    """A model file is missing, broken, or does not fit what it is asked to do."""


class SourceError(LgcError):
    """A sequence of frames cannot be found, recognized or read."""


class ConfigError(LgcError):
    """An option, parameter or configuration file is wrong."""


class DatasetError(LgcError):
    """A data set with ground truth is missing a file or holds a wrong value."""


class OutputError(LgcError):
    """A result cannot be written: the disk is full, read-only, or the path is taken."""


class Interrupted(LgcError):
    """The user ended the work with Ctrl-C before it was complete."""
