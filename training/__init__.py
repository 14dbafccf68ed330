"""Offline pipeline around lgc_ros: prepare data, train the filter, evaluate and report."""
