"""Reuse of freed memory, measured by the pages that the kernel had to zero."""

import subprocess
import sys

# Prints the page faults of allocating as SIFT does for a 640x480 image, in two threads in turn.
PROGRAM = """
import resource, threading
import numpy as np
from lgc_ros.runtime.allocator import retain_freed_memory

def use_and_free():
    blocks = [np.ones(5_000_000, np.uint8) for _ in range(12)]

def count():
    for _ in range(4):
        use_and_free()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        use_and_free()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

retain_freed_memory()
count()
thread = threading.Thread(target=count)
thread.start()
thread.join()
"""


def test_freed_memory_is_reused_by_all_threads():
    """Without retain_freed_memory, the kernel zeroes 50 000 pages for the main thread alone."""
    printed = subprocess.check_output([sys.executable, "-c", PROGRAM], text=True)
    faults = [int(line) for line in printed.split()]
    assert len(faults) == 2
    assert max(faults) < 1000
