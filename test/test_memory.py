"""Memory kept from image to image, as the system sees it: by pages that it had to clear."""

import subprocess
import sys

# Blocks as SIFT takes them for an image of 640x480, in the first thread and in another.
PROGRAM = """
import resource, sys, threading
import numpy as np
from lgc_ros.memory import keep_memory

def use_and_free():
    blocks = [np.ones(5_000_000, np.uint8) for _ in range(12)]

def count():
    for _ in range(4):
        use_and_free()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        use_and_free()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

if sys.argv[1] == "keep":
    keep_memory()
count()
thread = threading.Thread(target=count)
thread.start()
thread.join()
"""


def pages_cleared(how: str) -> list[int]:
    command = [sys.executable, "-c", PROGRAM, how]
    return [int(line) for line in subprocess.check_output(command, text=True).split()]


def test_freed_memory_is_used_again_by_all_threads():
    left_to_itself, kept = pages_cleared("leave"), pages_cleared("keep")
    assert max(kept) < 1000 < left_to_itself[0]
