"""Read back what was logged for the Rerun viewer."""

from collections import defaultdict

import numpy as np


def read_recording(path):
    """Per entity path, (seconds, {component: value}) in the order of time.

    What was logged later for the same time replaces what was there, as in the viewer. Static data
    have the time None.
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
            rows[chunk.entity_path].append((time, columns["rerun.controls.RowId"][index], values))
    logged = {}
    for entity, found in rows.items():
        at_time = {}
        for time, _, values in sorted(found, key=lambda r: (-1.0 if r[0] is None else r[0], r[1])):
            at_time[time] = {**at_time.get(time, {}), **values}
        logged[entity] = list(at_time.items())
    return logged


def points_of(values, component):
    """An array (N, 2) or (N, 3) of a component with positions."""
    return np.array([list(point) for point in values[component]])
