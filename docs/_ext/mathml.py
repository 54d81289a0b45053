"""Formulas as MathML, which browsers draw themselves: a page needs no network."""

import re

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator


def convert(node: nodes.Node, *, as_block: bool) -> str:
    r"""Turn a formula into MathML.

    docutils knows ``\dots`` by another name, ``\ldots``. Commands such as ``\big`` are removed,
    because parentheses in MathML grow by themselves.
    """
    tex = re.sub(r"\\[Bb]igg?[lr]?(?![a-z])", "", node.astext().replace(r"\dots", r"\ldots"))
    return tex2mathml(tex, as_block=as_block)


def inline(translator: HTML5Translator, node: nodes.math) -> None:
    """Write a formula inside a line."""
    translator.body.append(convert(node, as_block=False))
    raise nodes.SkipNode


def block(translator: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula in display style."""
    translator.body.append(f'<div class="math">{convert(node, as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer; `html_math_renderer` chooses it."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
