"""Infrastructure of the other packages; nothing here depends on images or poses.

`threads` limits the thread pools of all libraries, `jit` compiles loops with numba, `allocator`
keeps freed memory for the next image, `stage_timer` measures the stages of a frame, `safe_yaml`
reads YAML files, and `settings` describes settings and checks their ranges. `output_files` and
`result_folders` write results that are complete or absent.
"""
