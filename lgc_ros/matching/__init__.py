"""Putative matches: exact nearest neighbors, guided search, side information of each match."""
