"""Text for a terminal: nothing a suite, a plugin or a record says may move the cursor."""


def printable(text: object) -> str:
    """The text with control and formatting characters shown as escapes; line breaks and tabs too."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))
