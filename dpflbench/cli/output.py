"""Text for a terminal: nothing a suite, a plugin or a record says may move the cursor."""

import unicodedata


def printable(text: object) -> str:
    """The text with control and formatting characters shown as escapes; line breaks and tabs too."""
    return "".join(c if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") else c.encode("unicode_escape").decode()
                   for c in str(text))
