"""Copy MathJax out of the package django-static-mathjax: the book draws its equations offline."""

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


def setup(app):
    app.connect("build-finished", copy_mathjax)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
