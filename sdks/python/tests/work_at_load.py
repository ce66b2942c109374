"""A module that does at its top what a unit may not: it opens a socket. Its functions run where they were defined."""

import work_at_load_helper
from lighterage import offload


@offload
def answer():
    return 42 if work_at_load_helper.SOCKET is not None else 0
