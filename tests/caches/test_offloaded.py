"""What only the offloaded cache promises: what it moves, what visits the device, and a disk that may be full or missing."""

import errno
import os
import resource
import subprocess
import sys

import pytest
import torch

from cache_cases import feed
from kvedu.analysis.memory import kv_cache_bytes
from kvedu.caches.concat import ConcatCache
from kvedu.caches.offloaded import OffloadedCache
from kvedu.errors import CacheError, CacheFull
from kvedu.model.loops import greedy_cached
from tiny import random_ids, tiny_config, tiny_model, with_latents


def both(tmp_path):
    return [{}, {"folder": tmp_path}]


def test_same_tokens_and_exactly_the_bytes_of_the_formula(tmp_path):
    """A step of N tokens after S brings S tokens' bytes in and sends N out; two layers at most are on the device."""
    model = tiny_model(tiny_config(L=3))
    config, prompt, new = model.config, random_ids(9), 12
    wanted = greedy_cached(model, prompt, new, ConcatCache(config))
    for where in both(tmp_path):
        cache = OffloadedCache(config, max_length=32, **where)
        assert greedy_cached(model, prompt, new, cache) == wanted
        after = [9 + i for i in range(new - 1)]  # tokens cached before each decode step
        assert cache.bytes_in == sum(kv_cache_bytes(config, S, bytes_per_element=4) for S in after)
        assert cache.bytes_out == kv_cache_bytes(config, after[-1] + 1, bytes_per_element=4)
        assert cache.peak_device_bytes == kv_cache_bytes(config, after[-1] + 1, bytes_per_element=4) // 3
        assert cache.nbytes == kv_cache_bytes(config, 32, bytes_per_element=4)


def test_prefetched_layers_are_counted_and_right(tmp_path):
    """As on a GPU, one layer ahead: the same attention, and never more than two layers on the device."""
    config = tiny_config(L=4)
    plain, ahead = OffloadedCache(config, max_length=32), OffloadedCache(config, max_length=32)
    ahead.ahead = True
    seqs, generator = [plain.add(), ahead.add()], torch.Generator().manual_seed(0)
    for n in (6, 1, 3):
        kv = [torch.randn(2, n, 2, 8, generator=generator) for _ in range(4)]
        q_NHD, outs = torch.randn(n, 4, 8, generator=generator), []
        for cache, seq in zip((plain, ahead), seqs):
            with cache.step({seq: n}) as view:
                for layer in range(4):
                    view.append(layer, *kv[layer])
                    outs.append(view.attend(layer, q_NHD))
        for a, b in zip(outs[:4], outs[4:]):
            assert torch.equal(a, b)
    assert plain.bytes_in == ahead.bytes_in and ahead.peak_device_bytes == 2 * plain.peak_device_bytes


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_values_of_another_width_and_other_dtypes(tmp_path, dtype):
    """Latents of every head, written out, on disk: bytes to the byte."""
    config = with_latents(tiny_config(), absorbed=False)
    for where in both(tmp_path):
        cache = OffloadedCache(config, max_length=16, dtype=dtype, **where)
        feed(cache, {cache.add(): random_ids(5)})
        assert cache.nbytes == kv_cache_bytes(config, 16, bytes_per_element=dtype.itemsize)
        assert cache.bytes_out == kv_cache_bytes(config, 5, bytes_per_element=dtype.itemsize)


def test_no_file_is_left_or_seen(tmp_path):
    """The file has no name while it is used, its place on the disk is taken all the same, and a killed process leaves none."""
    cache = OffloadedCache(tiny_config(), max_length=4096, folder=tmp_path)
    feed(cache, {cache.add(): random_ids(40)})
    assert os.listdir(tmp_path) == []
    code = (
        "import os, sys; from kvedu.caches.offloaded import OffloadedCache; from kvedu.config import ModelConfig\n"
        "from kvedu.rope_config import RopeConfig\n"
        "config = ModelConfig(2, 8, 2, 2, 4, 8, 8, 64, RopeConfig(4))\n"
        "cache = OffloadedCache(config, max_length=4096, folder=sys.argv[1]); cache.add(); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 9
    assert os.listdir(tmp_path) == []


def test_the_file_goes_with_the_cache(tmp_path):
    """Mapped bytes of this process grow by the cache and shrink when it is gone."""
    def mapped():
        with open("/proc/self/maps", encoding="utf-8") as file:
            return sum(str(tmp_path) in line for line in file)

    if not os.path.exists("/proc/self/maps"):
        pytest.skip("this system lists no mappings under /proc")
    cache = OffloadedCache(tiny_config(), max_length=4096, folder=tmp_path)
    assert mapped() == 1
    cache.add()
    del cache
    assert mapped() == 0


def test_a_disk_that_cannot_take_it(tmp_path, monkeypatch):
    """One clear error each, before a token has come: no folder, no right to write, no room (asked of the real disk too)."""
    config = tiny_config()
    with pytest.raises(CacheError, match="nowhere is no folder: make it first"):
        OffloadedCache(config, max_length=8, folder=tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(CacheError, match="file is no folder"):
        OffloadedCache(config, max_length=8, folder=tmp_path / "file")
    with pytest.raises(CacheFull, match="free and the cache takes .*make it shorter, or give another disk"):
        OffloadedCache(config, max_length=2**42, folder=tmp_path)
    for code, kind, message in [
        (errno.ENOSPC, CacheFull, "another disk"), (errno.EACCES, CacheError, "cannot be written"), (errno.EIO, CacheError, "no cache file"),
    ]:  # fmt: skip

        def fails(*args, code=code):
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr("kvedu.caches.host_store.reserve", fails)
        with pytest.raises(kind, match=message):
            OffloadedCache(config, max_length=8, folder=tmp_path)
    assert os.listdir(tmp_path) == ["file"]


def test_where_space_cannot_be_reserved_it_is_written(tmp_path, monkeypatch):
    """macOS has no call for it."""
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    cache = OffloadedCache(tiny_config(), max_length=4096, max_sequences=3, folder=tmp_path)
    assert (cache.k[1] == 0).all() and cache.nbytes == kv_cache_bytes(tiny_config(), 3 * 4096, bytes_per_element=4)
    monkeypatch.setattr("kvedu.caches.host_store.shutil.disk_usage", lambda folder: type("Usage", (), {"free": 10}))
    with pytest.raises(CacheFull, match="10 B free"):
        OffloadedCache(tiny_config(), max_length=4096, folder=tmp_path)


def test_a_file_larger_than_the_limit_is_an_error_not_a_signal(tmp_path):
    """A limit on file size stands for a quota; the process lives on."""
    import signal

    old, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, old[1]))
    try:
        with pytest.raises(CacheFull, match="free and the cache takes"):
            OffloadedCache(tiny_config(), max_length=2**14, folder=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)


def test_no_room():
    config = tiny_config()
    for changes in ({"max_length": 0}, {"max_length": 4, "max_sequences": 0}):
        with pytest.raises(CacheFull, match="needs room for something"):
            OffloadedCache(config, **changes)
    cache = OffloadedCache(config, max_length=4)
    seq = cache.add()
    with pytest.raises(CacheFull, match="all 1 places are taken"):
        cache.add()
    feed(cache, {seq: [1, 2, 3]})
    assert cache.room(seq) == 1
    with pytest.raises(CacheFull, match="has 3 tokens and brings 2; a place holds 4"):
        feed(cache, {seq: [4, 5]})
    feed(cache, {seq: [4]})
