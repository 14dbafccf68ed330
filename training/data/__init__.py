"""Readers of data sets with ground truth, and the dump of labeled pairs made from them."""
