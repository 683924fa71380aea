"""What a part says of itself, for lists of parts and for editors. Apart from schema.py, which every run goes through:
no docstring shall make a run stale.
"""

import inspect
import re
from typing import Any


def description(factory: Any) -> str:
    """The first sentence of a factory's docstring; nothing where it has none of its own."""
    own = factory.__doc__ if inspect.isroutine(factory) or inspect.isclass(factory) else type(factory).__doc__
    paragraph = " ".join(inspect.cleandoc(own or "").partition("\n\n")[0].split())
    if paragraph.startswith(f"{getattr(factory, '__name__', '')}("):  # what a dataclass is given
        return ""
    return re.split(r"(?<=\.) (?=[A-Z`])", paragraph)[0]
