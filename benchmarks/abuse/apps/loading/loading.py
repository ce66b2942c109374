"""A module that uses the machine while it is imported."""

import os
import time

for _ in range(60):
    if os.fork() == 0:
        end = time.monotonic() + 25
        while time.monotonic() < end:
            pass
        os._exit(0)


def handle(event: object) -> str:
    return "loaded"
