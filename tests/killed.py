"""How does a copy of this process die for real?"""

import os
import signal
import time
from contextlib import suppress

from twice.faults import armed


def killed_worker(act, fatal, delay=0.0):
    """Do something in a copy of this process, which gets SIGKILL at a point, or after a while; return how it ended."""
    pid = os.fork()
    if not pid:
        code = 1
        try:

            def hook(point):
                if point == fatal:
                    os.kill(os.getpid(), signal.SIGKILL)

            with armed(hook):
                act()
            code = 0
        finally:
            os._exit(code)
    if delay:
        time.sleep(delay)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
