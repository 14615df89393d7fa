"""A hook of mkdocs: what the documentation site has beyond `docs/`.

1. The pages of the repository's root are pages of the site too, below `project/`.
2. Links to them lead there. Links to other files of the repository become plain text: the site has no source code.
3. The decisions (`docs/adr`) are a tab of their own, in their order.
"""

from __future__ import annotations

import os
import posixpath
import re

from mkdocs.structure.files import File

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROJECT = {f"{name.upper()}.md": f"project/{name}.md" for name in ("security", "specification", "changelog")}
PROJECT |= {"CONTRIBUTING.md": "project/contributing.md", "README.md": "README.md"}
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#\s]+)(#[^)]*)?\)")


def on_config(config):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201  (mkdocs calls it by its name)
    """Add the decisions to the navigation."""
    decisions = sorted(os.listdir(os.path.join(ROOT, "docs", "adr")))
    config.nav.append({"Decisions": [f"adr/{name}" for name in decisions]})
    return config


def on_files(files, config):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201  (as above)
    """Add the pages of the root."""
    for source, target in PROJECT.items():
        if target.startswith("project/"):
            with open(os.path.join(ROOT, source), encoding="utf-8") as file:
                files.append(File.generated(config, target, content=_with_links(file.read(), source, target)))
    return files


def on_page_markdown(markdown, page, **_):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN003, ANN201  (as above)
    """Lead links out of `docs/` to pages of the site."""
    path = page.file.src_uri
    return markdown if path.startswith("project/") else _with_links(markdown, f"docs/{path}", path)


def _with_links(markdown: str, source: str, target: str) -> str:
    """Rewrite the links of a page that is `source` in the repository and `target` in the site."""

    def rewrite(match: re.Match[str]) -> str:
        text, link, anchor = match[1], match[2], match[3] or ""
        if "://" in link or link.startswith("mailto:"):
            return match[0]
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
        page = file.removeprefix("docs/") if file.startswith("docs/") else PROJECT.get(file)
        if page is None:
            return text
        return f"[{text}]({posixpath.relpath(page, posixpath.dirname(target))}{anchor})"

    return LINK.sub(rewrite, markdown)
