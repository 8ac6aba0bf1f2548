"""Without a GPU: a cache's tensors go where it is told, and nowhere by default."""

import pytest
import torch

from cache_cases import CACHES, random_kv
from tiny import tiny_config

OURS = [name for name in CACHES if name.startswith(("none", "concat", "latent", "low", "window", "streaming", "evicting", "offloaded"))]


@pytest.mark.parametrize("name", OURS)
def test_the_device_is_told_never_guessed(name):
    """While PyTorch's own default is a device that holds no numbers: what was made there could not be mixed with the rest."""
    cache = CACHES[name](tiny_config())
    config, generator = cache.config, torch.Generator().manual_seed(0)
    assert cache.device.type == "cpu"

    def numbers(n):
        return *random_kv(config, n, generator), torch.randn(n, config.H, config.D, generator=generator)

    steps = [{0: 5, 1: 2}, {0: 1, 1: 1}, {1: 7}, {0: 3}]
    given = [[numbers(sum(counts.values())) for _ in range(cache.n_layers)] for counts in steps]
    tree = [numbers(3) for _ in range(cache.n_layers)]
    with torch.device("meta"):
        a, b = cache.add(), cache.add()
        assert (a, b) == (0, 1)
        for counts, layers in zip(steps, given):
            with cache.step(counts) as view:
                for layer, (k, v, q) in enumerate(layers):
                    q, k = view.rotate(q, k)
                    view.append(layer, k, v if config.latent is None else k[..., config.latent.rope_width :])
                    for out in (view.attend(layer, q), view.attend_reference(layer, q), *view.gather(layer, view.rows[0].seq)):
                        assert out.device.type == "cpu"
                assert view.last_rows.device.type == "cpu"
        if name != "none":
            with cache.step({a: 3}, {a: [-1, 0, 0]}) as view:
                for layer, (k, v, q) in enumerate(tree):
                    q, k = view.rotate(q, k)
                    view.append(layer, k, v)
                    assert view.attend(layer, q).device.type == "cpu"
            n = cache.length(a)
            cache.keep(a, [*range(n - 2), n - 1])
            cache.free(cache.fork(a))
    held = torch.cat([x.flatten().float() for layer in range(cache.n_layers) for x in cache._read(layer, b, cache.length(b))])
    assert held.isfinite().all()


def test_the_test_sees_a_tensor_of_the_default_device(monkeypatch):
    """One tensor made without a device is enough."""
    from kvedu.caches import window

    monkeypatch.setattr(window.WindowCache, "_slots", lambda self, positions: torch.tensor(window.places(positions, self.sinks, self.window)))
    with pytest.raises((RuntimeError, NotImplementedError, ValueError)):
        test_the_device_is_told_never_guessed("window")
