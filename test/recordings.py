"""Read back what was logged for the Rerun viewer."""

from collections import defaultdict

import numpy as np


def read_recording(path):
    """Per entity path, its rows in the order of time: (seconds, {component: value}).

    Static data have the time None.
    """
    from rerun.chunk import RrdReader

    rows = defaultdict(list)
    for chunk in RrdReader(str(path)).stream():
        columns = chunk.to_record_batch().to_pydict()
        for index in range(chunk.num_rows):
            time = columns["time"][index].total_seconds() if "time" in columns else None
            values = {
                name: values[index]
                for name, values in columns.items()
                if ":" in name and values[index] is not None
            }
            rows[chunk.entity_path].append((time, values))
    for logged in rows.values():
        logged.sort(key=lambda row: -1.0 if row[0] is None else row[0])
    return dict(rows)


def points_of(values, component):
    """An array (N, 2) or (N, 3) of a component with positions."""
    return np.array([list(point) for point in values[component]])
