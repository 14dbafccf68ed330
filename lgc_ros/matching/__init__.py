"""Putative matches between the features of two images.

`correspondences.match` finds the nearest neighbor of every keypoint, and `correspond` turns the
matches into normalized coordinates with side information. `nearest_neighbor` is the exact search
behind it. `guided.match_guided` searches around predicted positions only.
"""
