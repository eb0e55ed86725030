"""What mkdocs calls while it builds the site (see `hooks` in mkdocs.yml)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.structure.files import File

from site_build import contents, formulas, plain

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.nav import Navigation
    from mkdocs.structure.pages import Page

# Stubs list the public names, and griffe reads them there.
logging.getLogger("mkdocs.plugins.griffe").addFilter(lambda record: "__all__" not in record.getMessage())

pages: dict[str, str] = {}
"""The Markdown of every page of this build, by its place."""


def on_config(config: MkDocsConfig) -> None:
    """Show the project's address at the foot of each page, once there is one.

    It isn't `repo_url`, for which the theme's pages would ask the host for numbers.
    """
    if contents.ADDRESS:
        config.copyright = f'<a href="{contents.ADDRESS}">{contents.ADDRESS}</a>'


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what does not lie in docs/: pages that are made here, of the repository, of examples and of notebooks."""
    pages.clear()
    for place, content in {**contents.generated(), **contents.tutorials()}.items():
        files.append(File.generated(config, place, content=content))
    for place, source in contents.elsewhere().items():
        files.append(File.generated(config, place, abs_src_path=str(source)))
    return files


def on_nav(nav: Navigation, **_: Any) -> None:
    """The list of pages has the order of the navigation."""
    pages.update((page.file.src_uri, "") for page in nav.pages)


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Give the page the links of the site, and remember its Markdown."""
    place = page.file.src_uri
    markdown = contents.with_links(markdown, place)
    pages[place] = plain.written(contents.complete(markdown, place))
    return markdown


def on_page_content(html: str, **_: Any) -> str:
    """Formulas as MathML."""
    return formulas.in_html(html)


def on_post_build(config: MkDocsConfig, **_: Any) -> None:
    """Write the Markdown of all pages beside their HTML, and the list of them."""
    site = Path(config.site_dir)
    for place, text in pages.items():
        (site / place).write_text(text, encoding="utf-8")
    (site / "llms.txt").write_text(plain.index(config.site_name, config.site_description or "", pages), "utf-8")
