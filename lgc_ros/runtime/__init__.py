"""What the rest of the package runs on; nothing here knows about images or poses.

`threads` limits the thread pools of all libraries, `jit` compiles loops with numba, `allocator`
keeps freed memory for the next image, and `stage_timer` measures the stages of a frame.
"""
