"""The learned filter (Context Normalization network): a score for every putative match."""
