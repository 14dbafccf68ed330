"""Ctrl-C while something must not be interrupted."""

import signal

import pytest

from lgc_ros.runtime.interrupts import deferred_interrupts


def work(done, interrupt, times):
    with deferred_interrupts():
        for _ in range(times):
            interrupt()
        done.append("all")


@pytest.mark.parametrize(("times", "done"), [(1, ["all"]), (2, [])])
def test_ctrl_c_waits_for_the_end_of_the_block_and_a_second_one_does_not(ctrl_c, times, done):
    found = []
    with pytest.raises(KeyboardInterrupt):
        work(found, ctrl_c, times)
    assert found == done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_ignored_ctrl_c_stays_ignored(ctrl_c):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    found = []
    work(found, ctrl_c, 2)
    assert found == ["all"]
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
