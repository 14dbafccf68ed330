"""Errors that a user can solve: every message names the cause and the remedy."""


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
