"""The testbed's delay: does a packet take as long as was asked for?"""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from testbed import NODE_ADDRESS, Unable
from testbed import Testbed as Bed

ECHO = f"""
import socket
here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
here.bind(("{NODE_ADDRESS}", 7))
print("ready", flush=True)
while True:
    here.sendto(*here.recvfrom(100))
"""
# The least of some: what else the machine does makes single ones longer. A lost one is sent again.
ROUND_TRIPS = f"""
import socket, time
here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
here.settimeout(30)
took = []
while len(took) < 5:
    began = time.monotonic()
    here.sendto(b"%d" % len(took), ("{NODE_ADDRESS}", 7))
    if here.recv(100) == b"%d" % len(took):
        took.append(time.monotonic() - began)
print(min(took))
"""

# How many of 200 come back. The silence after the last one is no measurement.
ANSWERS = f"""
import socket, time
here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
here.settimeout(1)
for at in range(200):
    here.sendto(b"lost%d" % at, ("{NODE_ADDRESS}", 7))
answers = set()
try:
    while len(answers) < 200:
        answers.add(here.recv(100))
except TimeoutError:
    pass
print(len(answers))
"""


def test_a_packet_is_late_each_way_by_as_much_as_was_asked_for():
    try:
        with Bed(1.0) as testbed:
            testbed.rate(100)
            echo = testbed.start(testbed.node, [sys.executable, "-c", ECHO], stdout=subprocess.PIPE, text=True)
            assert echo.stdout.readline() == "ready\n"

            def round_trip():
                command = ["ip", "netns", "exec", testbed.client, sys.executable, "-c", ROUND_TRIPS]
                return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

            assert round_trip() < 0.6, "the bare cable"
            testbed.delay(300)
            assert testbed.delay_ms == 300 and round_trip() >= 0.6
            testbed.delay(0, loss=0.2)
            command = ["ip", "netns", "exec", testbed.client, sys.executable, "-c", ANSWERS]
            answered = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            assert 80 < answered < 180, "of 200 there and back, about 128"
            testbed.delay(0)
            assert testbed.loss == 0 and round_trip() < 0.6, "and the bare cable again"
    except Unable as problem:
        pytest.skip(f"namespaces: a longer cable: {problem}")
