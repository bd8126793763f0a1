"""The runtime type check that the import hook in ``conftest.py`` applies to the package."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
