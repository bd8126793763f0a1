"""Forget executed notebooks when the package or a dependency changed.

jupyter-cache looks at the cells alone: after an edit of ``tutorial_lib`` it would hand out
outputs that the code no longer gives. So the cache carries a fingerprint of all that the
outputs depend on, and is emptied when that differs. The Sphinx build and the tests both call
``refresh``; the tests fill the cache with what nbval saw (``store``).
"""

import hashlib
import os
import shutil
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path("_build", ".jupyter_cache")


def fingerprint(root):
    """A hash of the package's source and of every installed distribution's version."""
    digest = hashlib.sha256(sys.version.encode())
    for path in sorted(Path(root, "tutorial_lib").rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    versions = {f"{d.metadata['Name']}=={d.version}" for d in metadata.distributions()}
    digest.update("\n".join(sorted(versions)).encode())
    return digest.hexdigest()


def refresh(root=ROOT):
    """Empty the cache unless it was made with this package and these dependencies."""
    cache, now = Path(root, CACHE), fingerprint(root)
    mark = cache.with_name(cache.name + ".fingerprint")
    if mark.exists() and mark.read_text() == now:
        return
    shutil.rmtree(cache, ignore_errors=True)
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.write_text(now)


def store(path, notebook, root=ROOT):
    """Put one executed notebook where the book build looks for it."""
    from jupyter_cache import get_cache
    from jupyter_cache.base import CacheBundleIn

    get_cache(Path(root, CACHE)).cache_notebook_bundle(
        CacheBundleIn(notebook, str(path)), check_validity=True, overwrite=True
    )


def setup(app):
    os.environ.pop("MPLBACKEND", None)  # a kernel that inherits it shows figures as text
    os.environ.setdefault("TQDM_DISABLE", "1")  # no progress bars in the pages
    # The book's nets are small: a second thread costs more than it brings, and on a machine that
    # is busy it costs most of the time.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    app.connect("config-inited", lambda app, config: refresh(app.srcdir), priority=1)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
