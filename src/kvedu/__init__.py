"""kvedu: the KV cache and LLM inference, built to be read and run.

The names below are the front door; each is imported when it is first used, so that
``import kvedu`` costs nothing by itself.
"""

from importlib import import_module
from typing import Any

_HOME = {
    "load": "kvedu.model.load",
    "generate": "kvedu.model.generate",
    "stream": "kvedu.model.generate",
    "memory": "kvedu.analysis.footprint",
    "Sampling": "kvedu.model.sampling",
    "Completion": "kvedu.model.completion",
    "Transformer": "kvedu.model.transformer",
    "ModelConfig": "kvedu.config",
    "Cache": "kvedu.caches.contract",
    "NoCache": "kvedu.caches.none",
    "ConcatCache": "kvedu.caches.concat",
    "StaticCache": "kvedu.caches.static",
    "PagedCache": "kvedu.caches.paged",
    "QuantizedCache": "kvedu.caches.quantized",
    "PagedQuantizedCache": "kvedu.caches.paged_quantized",
    "KVFormat": "kvedu.caches.kv_format",
    "WindowCache": "kvedu.caches.window",
    "StreamingCache": "kvedu.caches.streaming",
    "EvictingCache": "kvedu.caches.evicting",
    "LatentCache": "kvedu.caches.latent",
    "PagedLatentCache": "kvedu.caches.paged_latent",
    "LowRankCache": "kvedu.caches.low_rank",
    "OffloadedCache": "kvedu.caches.offloaded",
    "HashReuse": "kvedu.caches.prefix_hash",
    "RadixReuse": "kvedu.caches.prefix_radix",
    "speculate": "kvedu.speculative.speculate",
    "NGram": "kvedu.speculative.ngram",
    "DraftModel": "kvedu.speculative.draft_model",
    "Engine": "kvedu.engine.engine",
    "AsyncEngine": "kvedu.engine.async_engine",
    "Swap": "kvedu.engine.preempt",
    "KveduError": "kvedu.errors",
    "check": "kvedu.grading.check",
    "progress": "kvedu.grading.progress",
    "leaderboard": "kvedu.grading.leaderboard",
}

__version__ = "0.1.0"
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'kvedu' has no attribute {name!r}; it offers {', '.join(_HOME)}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *_HOME]
