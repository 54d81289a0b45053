"""The notebooks with their last picture: ``{gallery}`` takes a line ``name: sentence`` for each.

A picture exists once its notebook has run, so the cards are filled in when the page is written.
"""

from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class PendingCard(nodes.General, nodes.Element):
    """A place for a notebook's card."""


class Gallery(SphinxDirective):
    """A directive that shows a card for each notebook in the page's folder."""

    has_content: ClassVar[bool] = True

    def run(self) -> list[nodes.Node]:
        """Return a container with one pending card per notebook."""
        folder = self.env.docname.rpartition("/")[0]
        gallery = nodes.container(classes=["gallery"])
        for line in self.content:
            name, _, sentence = line.partition(": ")
            gallery += PendingCard(page=f"{folder}/{name}", sentence=sentence)
        return [gallery]


def fill_in(app: Sphinx, tree: nodes.document, page: str) -> None:
    """Replace each place by a card: a link to the notebook, its last picture, and the sentence."""
    for place in list(tree.findall(PendingCard)):
        notebook = place["page"]
        title = app.env.titles[notebook].astext()
        address = app.builder.get_relative_uri(page, notebook)
        link: dict[str, Any] = {"refuri": address, "internal": True}
        card = nodes.container(classes=["card"])
        pictures = list(app.env.get_doctree(notebook).findall(nodes.image))
        if pictures:  # none if the notebooks were not run
            picture = pictures[-1].deepcopy()
            picture["alt"] = f"The last picture of {title}"
            card += nodes.paragraph("", "", nodes.reference("", "", picture, **link))
        card += nodes.paragraph("", "", nodes.strong("", "", nodes.reference("", title, **link)))
        card += nodes.paragraph("", place["sentence"])
        place.replace_self(card)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_node(PendingCard)
    app.add_directive("gallery", Gallery)
    app.connect("doctree-resolved", fill_in)
    return {"parallel_read_safe": True, "parallel_write_safe": False}
