"""Give the cell that asserts a claim an anchor: tag ``claim-C07`` becomes ``#claim-c07``.

The table in ``book/claims.md`` then leads to the very cell that was run.
"""

from docutils import nodes

PREFIX = "tag_claim-"


def add_anchors(app, doctree):
    labels = app.env.get_domain("std")
    for cell in doctree.findall(nodes.container):
        for name in cell["classes"]:
            if not name.startswith(PREFIX):
                continue
            claim = name.removeprefix(PREFIX).upper()
            anchor = f"claim-{claim.lower()}"
            if anchor not in cell["ids"]:
                cell["ids"].append(anchor)
            labels.anonlabels[anchor] = (app.env.docname, anchor)
            labels.labels[anchor] = (app.env.docname, anchor, claim)


def setup(app):
    app.connect("doctree-read", add_anchors)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
