"""A step of a workflow outside of the node: takes the events of a queue over HTTP, one at a time.

    LIGHTER_TOKEN=lighter_… python3 worker.py http://127.0.0.1:8701 jobs

Nothing but Python's own library. Killed at any moment, it loses no event: its lease ends, and the next worker has it.
"""

import base64
import json
import os
import sys
import time
import urllib.error
import urllib.request

LEASE_MS = 30_000


def handle(event: dict) -> None:
    """The work itself; `event` is a CloudEvent. An exception means: try it again later."""
    print(event["id"], data_of(event), flush=True)


def data_of(event: dict) -> object:
    """JSON as what it says, text as it is, and bytes of any other content type."""
    if "data_base64" in event:
        return base64.b64decode(event["data_base64"])
    return event.get("data")


class Queue:
    """The queue `name` of the node at `api`, by a token of the scope `work`."""

    def __init__(self, api: str, name: str, token: str) -> None:
        self.url = f"{api}/v1/queues/{name}"
        self.headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}

    def ask(self, verb: str, **request: object) -> dict:
        """One request. Raises HTTPError if the node refuses, and OSError if it cannot be reached."""
        body = json.dumps(request).encode()
        request = urllib.request.Request(f"{self.url}/{verb}", body, self.headers, method="POST")
        with urllib.request.urlopen(request, timeout=90) as reply:
            return json.loads(reply.read() or b"{}")

    def settle(self, verb: str, **request: object) -> None:
        """Acks or fails. A lease that has ended is another worker's by now: then there is nothing to do."""
        try:
            self.ask(verb, **request)
        except urllib.error.HTTPError as refused:
            if refused.code != 409:
                raise

    def work(self) -> None:
        """One turn: waits up to half a minute for an event, and handles it."""
        for taken in self.ask("lease", lease_ms=LEASE_MS, wait_ms=30_000)["leases"]:
            try:
                handle(taken["event"])
            except Exception as error:
                self.settle("fail", lease=taken["lease"], reason=repr(error))
            else:
                self.settle("ack", lease=taken["lease"])


def main() -> None:
    api, name = sys.argv[1:]
    queue = Queue(api, name, os.environ["LIGHTER_TOKEN"])
    while True:
        try:
            queue.work()
        except urllib.error.HTTPError as refused:
            if refused.code < 500:
                sys.exit(refused.read().decode())
            time.sleep(1)
        except OSError:
            time.sleep(1)  # The node is being restarted: what was leased will be leased again.


if __name__ == "__main__":
    main()
