"""Relative pose of two views, sections 3.1 to 3.5 of the paper.

`two_view.TwoViewPipeline` goes from two images to a pose, `two_view.RelativePoseSolver` from
matches to a pose; both return a `TwoViewResult`. `methods.parse_method` turns a name such as
`cn+magsac` into the steps to take. `estimators.ESTIMATORS` holds the robust estimators by name,
implemented in one file per backend.
"""
