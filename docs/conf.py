"""Settings of the documentation: `make docs` builds it into build/docs."""

from __future__ import annotations

import os
import re
from importlib import metadata
from typing import TYPE_CHECKING, Any

from sphinx.util.nodes import make_refnode

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "dgpuhash"
author = "the dgpuhash developers"
release = version = metadata.version("dgpuhash")

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_click",
]
templates_path = ["_templates"]
nitpicky = True
# What other libraries document; and parameters and a module, which docstrings name.
nitpick_ignore_regex = [
    ("py:obj", r"(numpy|pandas|dask|distributed)\..*"),
    ("py:obj", r"frame|index|nbytes|dgpuhash\.(seeds|tables\.TableStats)"),
]

myst_enable_extensions = ["colon_fence", "deflist"]
# Files of the repository, such as CHANGELOG.md, are included; their headings may be linked to.
myst_heading_anchors = 3

# `make docs` runs the notebooks; `make docs EXECUTE=off` shows their code alone.
nb_execution_mode = os.environ.get("EXECUTE", "force")
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 120

autosummary_generate = True
autodoc_member_order = "bysource"
# The parameters' descriptions name their types.
autodoc_typehints = "none"
numpydoc_show_class_members = False
default_role = "autolink"

html_theme = "pydata_sphinx_theme"
html_title = "dgpuhash"
html_show_sourcelink = False
html_theme_options = {
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "show_toc_level": 2,
    # Guide, CLI, API, Benchmarks, How it works: all of the root page's table of contents.
    "header_links_before_dropdown": 5,
}


def public_name(app: Sphinx, env: Any, node: Any, contnode: Any) -> Any:
    """Return a link to the object whose full name ends in the missing one, if there is one."""
    target = node.get("reftarget", "")
    if node.get("reftype") != "obj":
        return None
    for name, entry in env.domains["py"].objects.items():
        if name.endswith(f".{target}"):
            return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, contnode)
    return None


def shown_signature(app: Sphinx, what: str, name: str, *_: Any) -> tuple[str, None] | None:
    """Return no signature for classes that are made by their class methods."""
    made_otherwise = r"\.(DistributedIndex|FrameIndex|LookupMixin|Lookup|IndexAccessor|Placement)$"
    return ("", None) if what == "class" and re.search(made_otherwise, name) else None


def setup(app: Sphinx) -> None:
    """Connect the functions above to the build."""
    app.connect("missing-reference", public_name)
    app.connect("autodoc-process-signature", shown_signature)
