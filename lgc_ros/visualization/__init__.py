"""Pictures of matches, trajectories and landmarks, and reports.

`matches.draw_two_view` draws the matches of a pair, `trajectory.draw_run` the results of a run,
`trajectory_errors` those of `lgc evaluate trajectory`, `calibration` those of `lgc calibrate`, and
`video` writes videos. `viewer` logs runs for the Rerun viewer, which `viewer_outputs` opens.
`point_cloud` collects landmarks. `report.write_report` writes the HTML report of `lgc demo`, and
`run_report.write_run_report` that of a run, with plots of `charts` on the skeleton of `page`.
"""
