"""Sources of frames: one module per kind of input."""
