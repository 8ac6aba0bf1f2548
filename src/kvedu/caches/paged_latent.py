"""Pages of latents: the paged cache of a model with multi-head latent attention, one vector per token and layer.

What ``LatentCache`` stores, [rotated R | latent Z], in pages ``[P, C, 1, R + Z]``. The values are the last Z elements of
the same memory, a view, so a page that is written, copied, swapped or remembered is written, copied, swapped and
remembered once. DeepSeek-V2 (2024) for the cache; Kwon et al. (2023) for the pages.
"""

from __future__ import annotations

from torch import Tensor

from kvedu.caches.latent import check_absorbed
from kvedu.caches.paged import PagedCache
from kvedu.config import ModelConfig
from kvedu.errors import CacheError


class PagedLatentCache(PagedCache):
    """``n_pages`` pages of latents; arguments as for ``PagedCache``, and it shares, forks, remembers and swaps as that does.

    Memory: Z + R elements a token and layer. The engine takes it by itself for such a model. Attention gathers a
    sequence's pages first, since the kernels want values as wide as keys.

    Raises ``CacheError`` for a model without latents, with latent attention that is written out, and for a spare page.
    """

    any_value_width = True

    def __init__(self, config: ModelConfig, **kwargs) -> None:
        check_absorbed(config)
        if kwargs.get("spare"):
            raise CacheError("pages of latents have no spare page, since steps over them are not recorded; leave spare out")
        super().__init__(config, **kwargs)

    def _make_pages(self) -> None:
        self.k = self._zeros()
        self.v = [k_PCKD[..., self.config.latent.rope_width :] for k_PCKD in self.k]

    @property
    def page_tensors(self) -> list[Tensor]:
        return self.k
