"""What the documentation site is made of beside the pages in docs/: pages from the code itself, and plain Markdown.

`hook.py` is what mkdocs calls. No page here is written by hand.
"""
