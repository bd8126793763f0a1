"""Links from the API page to the lines of the source.

``sphinx.ext.linkcode`` wants a Python function, which a YAML configuration cannot give.
"""

import importlib
import inspect
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def resolver(app):
    options = app.config.html_theme_options
    address, branch = options["repository_url"], options["repository_branch"]

    def resolve(domain, info):
        if domain != "py" or not info["module"]:
            return None
        found = importlib.import_module(info["module"])
        for part in info["fullname"].split("."):
            found = getattr(found, part, None)
        try:
            found = inspect.unwrap(found)
            path = Path(inspect.getsourcefile(found)).resolve().relative_to(ROOT)
            lines, start = inspect.getsourcelines(found)
        except (TypeError, ValueError, OSError):
            return None
        end = start + len(lines) - 1
        return f"{address}/blob/{branch}/{path.as_posix()}#L{start}-L{end}"

    return resolve


def setup(app):
    app.setup_extension("sphinx.ext.linkcode")
    app.connect(
        "config-inited",
        lambda app, config: setattr(config, "linkcode_resolve", resolver(app)),
        priority=1,
    )
    return {"parallel_read_safe": True, "parallel_write_safe": True}
