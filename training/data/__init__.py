"""Readers of data sets with ground truth, and the dump of labelled pairs made from them."""
