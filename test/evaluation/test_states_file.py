"""states.csv: what is read is what was written."""

import csv

import numpy as np

from lgc_ros.evaluation.states_file import COLUMNS, COUNTS, read_states, write_states


def test_states_are_read_as_they_were_written(finished_run, tmp_path):
    write_states(tmp_path, finished_run.states)
    states = read_states(tmp_path)
    assert len(states) == len(finished_run.states)
    for state, written in zip(states, finished_run.states, strict=True):
        for name in ("stamp_ns", "status", "message", "keyframe"):
            assert getattr(state, name) == getattr(written, name)
        assert state.counts == {name: written.counts.get(name, 0) for name in COUNTS}
        np.testing.assert_allclose(state.T_wc, written.T_wc, atol=1e-6)
        sigmas, expected = (np.sqrt(np.diag(s.covariance)) for s in (state, written))
        np.testing.assert_allclose(sigmas, expected, rtol=1e-6)


def test_the_columns_are_those_of_the_header(finished_run, tmp_path):
    write_states(tmp_path, finished_run.states)
    with (tmp_path / "states.csv").open() as file:
        header, *rows = csv.reader(file)
    assert tuple(header) == COLUMNS
    assert {len(row) for row in rows} == {len(COLUMNS)}
