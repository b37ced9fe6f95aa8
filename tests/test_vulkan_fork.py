"""A process that forks after Vulkan has started: the child gets an error that says so, and an end."""

import pytest
from conftest import run_python, vulkan

GPU = vulkan()
START = """
import atexit, ctypes, multiprocessing, os, signal, sys
import numpy as np
import tinyadept as ta

x = ta.tensor(np.arange(4), device="vulkan")
double = ta.capture(lambda a: a * 2, "vulkan")
for _ in range(4):
    double(x)

def refused():
    new = lambda: ta.tensor(1.0, device="vulkan")
    for use in (x.numpy, lambda: x + 1, new, x.backend.queue.flush, lambda: double(np.ones(4, np.int32))):
        try:
            use()
        except ta.DeviceError as error:
            assert "fork" in str(error) and "spawn" in str(error)
        else:
            os._exit(2)
"""
FORK = """
libc = ctypes.CDLL(None)
libc.__cxa_atexit(libc.pause, None, None)  # like a driver that waits for a thread which is not there
atexit.register(print, "exit functions run")
if os.fork() == 0:
    signal.alarm(30)
    refused()
    libc.printf(b"C prints, ")
    print("Python prints, ", end="")
    END
else:
    status = os.waitstatus_to_exitcode(os.wait()[1])
    assert x.numpy().tolist() == [0, 1, 2, 3]
    print("status", status, flush=True)
    os._exit(0)
"""
MULTIPROCESSING = """
process = multiprocessing.get_context("fork").Process(target=refused)
process.start()
process.join(30)
assert x.numpy().tolist() == [0, 1, 2, 3]
print("status", process.exitcode)
"""
ENDS = {"pass": 0, "sys.exit(3)": 3, "raise ValueError": 1, "os._exit(4)": 4}


@pytest.mark.parametrize("end", ENDS)
def test_a_forked_child_gets_an_error_and_ends_as_it_says(end):
    done = run_python("-c", START + FORK.replace("END", end))
    assert done.returncode == 0, done.stderr
    told, _, status = done.stdout.partition("status ")
    assert int(status) == ENDS[end]
    if not end.startswith("os._exit"):  # which writes and runs nothing
        for part in ("C prints, ", "Python prints, ", "exit functions run"):
            assert told.count(part) == 1
    assert ("ValueError" in done.stderr) == ("ValueError" in end)


def test_a_child_of_multiprocessing_gets_an_error_and_ends():
    done = run_python("-c", START + MULTIPROCESSING)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "status 0\n"
