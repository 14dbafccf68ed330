"""Relative pose of two views: robust estimators by name and the two-view pipeline."""
