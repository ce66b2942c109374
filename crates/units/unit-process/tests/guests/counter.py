"""Counts its calls in the store: the bucket is `counters`, the key is the data, or `calls` if there is none."""

from lighterage.unit import Denied, Event, Fatal, Invalid, Malformed, Retry, Unavailable, store


def handle(event: Event) -> str:
    try:
        return f"{store.increment('counters', event.data.decode() or 'calls')}\n"
    except Denied as error:
        raise Fatal(str(error)) from None
    except Malformed as error:
        raise Invalid(str(error)) from None
    except Unavailable as error:
        raise Retry(str(error)) from None
