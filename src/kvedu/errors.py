"""Errors that teach: each says what came, what was wanted and what to try.

All are ``ValueError`` so that a caller can catch the whole family; a class of
its own exists only where a caller would act differently.
"""


class KveduError(ValueError):
    """Any input that kvedu refuses."""


class ConfigError(KveduError):
    """A model configuration that contradicts itself or names something kvedu does not know."""


class LoadError(KveduError):
    """A checkpoint, file or name that cannot be loaded whole."""


class CacheError(KveduError):
    """A cache operation on a wrong sequence, length or layer; nothing was changed."""


class CacheFull(CacheError):
    """The cache has no room for the tokens of a step; nothing was written."""


class RequestError(KveduError):
    """A generation request that can never be served: empty, too long, ids out of range."""
