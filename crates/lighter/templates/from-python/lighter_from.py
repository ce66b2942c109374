"""Runs a handler that was written for {{origin}} as a function of Lighterage. Made by `lighter new --from`."""

from lighterage.unit.foreign import of_{{origin}}
from {{module}} import {{function}}

handle = of_{{origin}}({{function}})
