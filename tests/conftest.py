"""Shapes and types are checked at run time, and silent broadcasting is an error, in every test."""

import jax
from jaxtyping import install_import_hook

jax.config.update("jax_numpy_rank_promotion", "raise")
install_import_hook("feelgood", "beartype.beartype")
