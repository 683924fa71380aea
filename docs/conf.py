"""The site: sphinx with furo and myst-parser.

All three are maintained, warnings are errors (`-W`), and links are checked by sphinx itself; mkdocs-material, the other
way to have a site of Markdown, ends in May 2027. Docstrings here are Markdown, which sphinx's autodoc is not made for,
so generate.py writes the reference, and sphinx sees Markdown alone.
"""

from dpflbench import __version__

project = "dpflbench"
author = "the dpflbench developers"
release = version = __version__
html_title = f"dpflbench {__version__}"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 4
html_theme = "furo"
html_copy_source = False
html_show_copyright = False
highlight_language = "none"
nitpicky = True
