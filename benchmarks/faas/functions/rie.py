"""The same functions as a handler of AWS Lambda, for its runtime interface emulator."""

from typing import Any

import work


def handler(event: dict[str, Any], _: object) -> dict[str, Any]:
    return work.answer(event)
