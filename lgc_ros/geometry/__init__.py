"""Camera models and two-view geometry in plain numpy."""
