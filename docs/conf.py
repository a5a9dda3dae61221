"""Sphinx configuration: ``sphinx-build -W --keep-going docs site`` builds the site.

The pages are Markdown that also displays on GitHub; those in ``reference/`` are generated from the code.
"""

import re
import sys
from itertools import groupby
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))  # the code of this checkout, wherever jitlto is installed

import click  # noqa: E402
from docutils import nodes  # noqa: E402
from sphinx.addnodes import pending_xref  # noqa: E402
from sphinx.application import Sphinx  # noqa: E402
from sphinx.domains.python import PythonDomain  # noqa: E402
from sphinx.environment import BuildEnvironment  # noqa: E402

import jitlto  # noqa: E402 - found through the line above
from jitlto.plan import plan  # noqa: E402
from jitlto.plan.user_code import inputs  # noqa: E402

# Sphinx evaluates the fields of structs; plans name these for type checkers alone.
vars(plan).update(UserInput=inputs.UserInput, Services=object)

project = "jitlto"
author = "the authors of jitlto"
version = release = jitlto.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_click"]
exclude_patterns = ["workflows"]
templates_path = ["_templates"]
default_role = "code"  # docstrings and help texts use single backticks for code, as in Markdown

# The order of the pages. It is not a directive in index.md because GitHub would show that as text.
PAGES = {
    "Start": ["quickstart", "comparison"],
    "Guides": [
        "author-guide",
        "migration",
        "packaging",
        "ci-guide",
        "caller-guide",
        "tuning",
        "operators",
        "profiling",
    ],
    "Facts": ["compatibility", "shared-stores", "security", "benchmarks/README"],
    "Reference": ["configuration", "errors", "database", "reference/index"],
    "Development": ["architecture"],
}

# Anchors like GitHub's. A link to a missing page, heading or file is a warning.
myst_heading_anchors = 4

# Every class and function named in a signature or docstring must be in the reference, except Python's own, which would
# need the network, and objects that callers receive but never create.
nitpicky = True
nitpick_ignore_regex = [
    ("py:class", r"(collections\.abc|concurrent\.futures|contextlib|enum|inspect|os|pathlib)\..*"),
    ("py:class", r"Path|callable|defaultdict|function|iterable|mapping|path|sequence|([\w.]+\.)?T"),
    ("py:class", r"\(\w+|\w+\)"),  # from "tuple of (str, str)"
    ("py:class", r"([\w.]+\.)?(CacheDir|DatabaseFile|KernelCache|LinkKey|Loaded|LookupResult|PlannedFamily)"),
    ("py:class", r"([\w.]+\.)?(Chosen|Contents|Extent|FamilyIndex|Index|InputKind|Kernel)"),
    ("py:class", r"([\w.]+\.)?Meta"),
    ("py:class", r"([\w.]+\.)?LaunchAttributes"),  # for type checkers alone
    ("py:class", r"([\w.]+\.)?(RenderedFamilies|RenderedSource|Resolution|Services|Shape|SuppliedInput|UserInput)"),
]

napoleon_numpy_docstring = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_mock_imports = ["cuda"]  # so that the site can be built without a CUDA toolchain
autodoc_default_options = {"members": True}
python_maximum_signature_line_length = 100

html_theme = "pydata_sphinx_theme"
html_title = "jitlto"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_context = {"default_mode": "auto"}  # light or dark, following the reader's system
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "jitlto"},
    "navbar_align": "right",
    "navbar_center": [],
    "show_prev_next": True,
    "show_toc_level": 2,  # the sections below "Rules" too, on every page
    "secondary_sidebar_items": {"**": ["page-toc"], "index": []},
    "footer_start": [],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"**": ["all-pages"]}

# `sphinx-build -b linkcheck docs build/links` checks all external links over the network.
linkcheck_timeout = 20
linkcheck_workers = 4
linkcheck_anchors_ignore_for_url = [r"https://github\.com/.*"]  # GitHub creates them in the browser


def _by_last_name(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> nodes.reference | None:
    """Resolve a name without its module, such as ``Plan``, if it is unique in the reference."""
    python = env.domains["py"]
    if node["refdomain"] != "py" or not isinstance(python, PythonDomain):
        return None
    ends = f".{node['reftarget']}"
    found = {entry.node_id: entry.docname for name, entry in python.objects.items() if name.endswith(ends)}
    if len(found) != 1:
        return None
    [(anchor, page)] = found.items()
    uri = app.builder.get_relative_uri(node["refdoc"], page)
    return nodes.reference("", "", content, internal=True, refuri=f"{uri}#{anchor}")


def _with_contents(app: Sphinx, page: str, source: list[str]) -> None:  # noqa: ARG001 - passed by Sphinx
    """Add the table of contents to the front page."""
    if page != "index":
        return
    for caption, pages in PAGES.items():
        there = [name for name in pages if any((DOCS / name).with_suffix(kind).is_file() for kind in (".md", ".rst"))]
        source[0] += "\n".join(["", "```{toctree}", ":hidden:", f":caption: {caption}", *there, "```", ""])


def _keep_layout(app: Sphinx, context: click.Context, lines: list[str]) -> None:  # noqa: ARG001
    """Show preformatted parts of help texts (after a ``\\b``) as code blocks instead of paragraphs."""
    shown: list[str] = []
    for laid_out, run in groupby(lines, key=lambda line: line.startswith("| ")):
        if laid_out:
            shown += ["", ".. code-block:: text", "", *(f"   {line[2:]}" for line in run), ""]
        else:
            shown += run
    lines[:] = shown


def _options_are_code(app: Sphinx, context: click.Context, lines: list[str]) -> None:  # noqa: ARG001
    """Mark ``--option`` in help texts as code, because prose would turn two dashes into one."""
    pattern = re.compile(r"`[^`]*`|(?<![\w-])--[a-z][a-z-]*")
    for number, line in enumerate(lines):
        if not line.startswith(("..", "   ..", "| ")):
            lines[number] = pattern.sub(lambda found: found[0] if found[0][0] == "`" else f"``{found[0]}``", line)


def setup(app: Sphinx) -> None:
    """Register the handlers; called by Sphinx."""
    app.connect("source-read", _with_contents)
    for part in ("description", "epilog", "options"):
        app.connect(f"sphinx-click-process-{part}", _options_are_code)
        app.connect(f"sphinx-click-process-{part}", _keep_layout)
    app.connect("missing-reference", _by_last_name)
