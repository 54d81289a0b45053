"""The reference by `__all__`: tables of names, links wherever a page says one, and no name
forgotten.

A name is described once, in the package that it belongs to; `polyembed.CRF` and `CRF` lead there as
well.
"""

import importlib
import pkgutil
import re
from collections import Counter
from functools import cache
from inspect import isclass, isroutine
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.autosummary import Autosummary
from sphinx.util import logging

import polyembed

LOG = logging.getLogger(__name__)
PACKAGES = tuple(
    f"polyembed.{module.name}"
    for module in pkgutil.iter_modules(polyembed.__path__)
    if not module.name.startswith("_")
)
# members for authors of new parts, or with the same meaning in every class; other pages describe
# them
SKIPPED = {
    "check_inputs",
    "get_config",
    "from_config",
    "lexicon_mark",
    "write_files",
    "detachable_parameters",
}
# pages that are not about one capability
NOT_OF_ONE = {
    "index",
    "start",
    "choose",
    "results",
    "fidelity",
    "glossary",
    "conventions",
    "compatibility",
}
WORD = re.compile(r"[A-Za-z_]\w*")
INLINE = re.compile(r"(?:pe\.|polyembed\.)?([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\(.*\))?", re.DOTALL)


def names_of(package: str) -> list[str]:
    """List a package's public names: `__all__`, or what a module without it defines."""
    module = importlib.import_module(package)
    own = (
        name
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == package
    )
    return list(
        getattr(module, "__all__", None) or sorted(name for name in own if not name.startswith("_"))
    )


@cache
def homes() -> dict[str, str]:
    """Map each public name to its place in the reference.

    For example, ``"CRF"`` is mapped to ``"polyembed.tagging.CRF"``.
    """
    return {name: f"{package}.{name}" for package in PACKAGES for name in names_of(package)}


class PublicNames(Autosummary):
    """The directive ``.. public-names:: polyembed.text``: a table of the names in its `__all__`."""

    required_arguments = 1
    has_content = False

    def run(self) -> list[nodes.Node]:
        """Return the table of the package's public names."""
        package = self.arguments[0]
        self.options["nosignatures"] = None
        module = importlib.import_module(package)
        public = ((name, getattr(module, name)) for name in names_of(package))
        names = [
            f"~{package}.{name}" for name, value in public if isclass(value) or isroutine(value)
        ]
        self.content = StringList(names, source="__all__")
        return super().run()


def skip(
    app: Sphinx, what: str, name: str, obj: object, skipped: bool, options: Any
) -> bool | None:
    """Leave out members that users do not need, and fields that a class's docstring describes."""
    if name in SKIPPED or type(obj).__name__ == "_tuplegetter":
        return True
    return None


def place(env: BuildEnvironment, target: str) -> str | None:
    """Return the full name under which a short name is documented; None if it is not.

    For an inherited method it is the name of the class.
    """
    objects = env.domains["py"].objects  # type: ignore[attr-defined]
    short = target.removeprefix("pe.").removeprefix("polyembed.")
    head, dot, rest = short.partition(".")
    home = homes().get(head, "")
    for found in (target, f"polyembed.{short}", home + dot + rest, home):
        if found in objects:
            return found
    return None


def resolve(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, text: nodes.Element
) -> nodes.Node | None:
    """Resolve a reference by a short name."""
    found = place(env, str(node.get("reftarget"))) if node.get("refdomain") == "py" else None
    if found is None:
        return None
    domain = env.domains["py"]
    return domain.resolve_xref(env, node.get("refdoc", ""), app.builder, "obj", found, node, text)


def link_literals(app: Sphinx, doctree: nodes.document) -> None:
    """Turn `CRF`, `pe.bake(hme)` and `functional.csls` in the prose of pages into links."""
    known, top = homes(), set(polyembed.__all__)
    for literal in list(doctree.findall(nodes.literal)):
        match = INLINE.fullmatch(literal.astext())
        inside = isinstance(literal.parent, nodes.reference | addnodes.pending_xref | nodes.title)
        if match is None or inside or literal.get("classes"):
            continue
        name = match[1]
        head = name.partition(".")[0]
        home = known.get(head, "")
        # `entropy` may be a method and `merge` a word, but `Lexicon`, `bake` and `read_conll` are
        # names
        snake = "_" in head and not home.startswith(("polyembed.crf", "polyembed.functional"))
        plain = head[0].isupper() or head in top or snake
        if (plain and home) or f"polyembed.{head}" in PACKAGES:
            link = addnodes.pending_xref(
                "",
                refdomain="py",
                reftype="obj",
                reftarget=name,
                refdoc=app.env.docname,
                refwarn=False,
            )
            literal.replace_self(link)
            link += literal


def remember(app: Sphinx, doctree: nodes.document) -> None:
    """Count how often a page of a capability has each public name, in its prose and in its code."""
    page = app.env.docname
    if "/" in page or page in NOT_OF_ONE:
        return
    known = homes()
    said = [str(node["reftarget"]) for node in doctree.findall(addnodes.pending_xref)]
    said += [
        name
        for code in doctree.findall(nodes.literal_block)
        for name in WORD.findall(code.astext())
    ]
    names = (name.removeprefix("pe.").partition(".")[0] for name in said)
    mentions(app.env)[page] = Counter(known[name] for name in names if name in known)


def mentions(env: BuildEnvironment) -> dict[str, Counter[str]]:
    """Return what `remember` counted, kept between builds."""
    if not hasattr(env, "polyembed_mentions"):
        env.polyembed_mentions = {}  # type: ignore[attr-defined]
    found: dict[str, Counter[str]] = env.polyembed_mentions  # type: ignore[attr-defined]
    return found


def link_back(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Add a link below each signature, to the page that mentions the name most often."""
    if not page.startswith("api/"):
        return
    for entry in doctree.findall(addnodes.desc):
        target = entry[0].get("ids", [""])[0]
        counts = {
            other: found[target] for other, found in mentions(app.env).items() if found[target]
        }
        if target not in homes().values() or not counts:
            continue
        best = max(sorted(counts), key=counts.__getitem__)
        uri = app.builder.get_relative_uri(page, best)
        link = nodes.reference("", app.env.titles[best].astext(), internal=True, refuri=uri)
        entry[-1].insert(
            0, nodes.paragraph("", "The page: ", link, nodes.Text("."), classes=["page-of"])
        )


def check_complete(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn about every public name that the reference does not describe."""
    elsewhere = {name: f"polyembed.{name}" for name in polyembed.__all__ if name != "__version__"}
    for name in {**elsewhere, **homes()}.values():
        if place(env, name) is None:
            LOG.warning("%s is public, but the reference does not describe it", name)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register everything with Sphinx."""
    app.setup_extension("sphinx.ext.autosummary")
    app.add_directive("public-names", PublicNames)
    app.connect("autodoc-skip-member", skip)
    app.connect("missing-reference", resolve)
    app.connect("doctree-read", link_literals)
    app.connect("doctree-read", remember, priority=900)
    app.connect("env-purge-doc", lambda app, env, page: mentions(env).pop(page, None))
    app.connect(
        "env-updated", lambda app, env: [page for page in env.found_docs if page.startswith("api/")]
    )
    app.connect("doctree-resolved", link_back)
    app.connect("env-check-consistency", check_complete)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
