"""The learned filter: a network with Context Normalization scores every putative match.

`correspondence_filter.CorrespondenceFilter` is what the pipeline calls. `network` is the paper's
architecture in torch, `side_information` its inputs beyond coordinates, `checkpoint` reads and
writes model files, and `backends` runs the network on the CPU or GPU at hand.
"""
