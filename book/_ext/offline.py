"""Pages that need no network.

MathJax comes out of the package django-static-mathjax instead of from another host. The scripts
of sphinx-thebe, which Jupyter Book puts on every page, are left out: they start code on a remote
server, and the book does not use them.
"""

import importlib.util
import shutil
from pathlib import Path

PARTS = ("tex-mml-chtml.js", "output/chtml/fonts/woff-v2", "input/tex/extensions")


def copy_mathjax(app, exception):
    if exception or app.builder.format != "html":
        return
    package = importlib.util.find_spec("mathjax").submodule_search_locations[0]
    source = Path(package, "static/mathjax/es5")
    for part in PARTS:
        target = Path(app.outdir, "_static/mathjax", part)
        target.parent.mkdir(parents=True, exist_ok=True)
        if (source / part).is_dir():
            shutil.copytree(source / part, target, dirs_exist_ok=True)
        else:
            shutil.copy2(source / part, target)


def leave_thebe_out(app, config):
    for event in ("env-before-read-docs", "doctree-resolved"):
        for listener in list(app.events.listeners.get(event, [])):
            if listener.handler.__module__.startswith("sphinx_thebe"):
                app.disconnect(listener.id)


def setup(app):
    app.connect("config-inited", leave_thebe_out)
    app.connect("build-finished", copy_mathjax)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
