"""Pictures of matches, trajectories and landmarks, and the report of the demo.

`matches.draw_two_view` draws the matches of a pair, `trajectory.plot_run` the results of a run and
`trajectory.VideoWriter` its video. `point_cloud.landmark_cloud` collects the landmarks of a
recording, and `report.write_report` writes the HTML report of `lgc demo`, with plots of `charts`.
"""
