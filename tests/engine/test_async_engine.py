"""The engine behind ``async for``: many consumers at once, each alone in what it asks, gets wrong or walks away from."""

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing

import pytest

from engines import assert_all_came_back, engine_of, solo
from kvedu.engine.async_engine import AsyncEngine, EngineStopped
from kvedu.engine.depths import Full
from kvedu.engine.trace import Ended, Verified
from kvedu.errors import RequestError
from kvedu.model.generate import generate
from kvedu.model.sampling import Sampling
from kvedu.speculative.draft_model import DraftModel
from tiny import random_ids, tiny_model

PATIENCE_SECONDS = 60


def apart(work):
    """Call it in a thread of its own: a browser test in the same process leaves its event loop running in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def run(work):
    """Run a coroutine; hang for a minute at most."""
    return apart(lambda: asyncio.run(asyncio.wait_for(work, PATIENCE_SECONDS)))


async def until(condition):
    """Let the worker go on until something holds."""
    while not condition():
        await asyncio.sleep(0.001)


async def tokens_of(server, prompt, **settings):
    return [t async for delta in server.stream(prompt, **settings) for t in delta.token_ids]


@pytest.mark.parametrize("overlap", [False, True])
def test_many_streams_at_once(overlap):
    """More consumers than slots: every stream is what the prompt gives alone, and they are served together."""
    model = tiny_model()
    engine = engine_of(model, pages=30, max_running=4, overlap=overlap)

    async def main():
        async with AsyncEngine(engine) as server:
            asked = (tokens_of(server, random_ids(3 + i % 5, seed=i), max_new_tokens=6) for i in range(12))
            streams = await asyncio.gather(*asked)
            await until(lambda: not engine._requests and not engine._unread and not server._tickets)  # what has ended is dropped
            return streams

    assert run(main()) == [list(solo(model, random_ids(3 + i % 5, seed=i), 6)) for i in range(12)]
    assert_all_came_back(engine)
    assert max(len(step.shares) for step in engine.trace.events if hasattr(step, "shares")) > 1


def test_generate_gives_all_copies_and_stream_their_deltas():
    model = tiny_model(scale=0.1)
    settings = dict(n=3, max_new_tokens=5, sampling=Sampling(temperature=1.0, seed=4))
    engine = engine_of(model)

    async def main():
        async with AsyncEngine(engine) as server:
            deltas = [delta async for delta in server.stream(random_ids(4), **settings)]
            return deltas, await server.generate(random_ids(4), **settings)

    deltas, completions = run(main())
    wanted = [c.token_ids for c in generate(model, [random_ids(4)], **settings)[0]]
    assert [c.token_ids for c in completions] == wanted
    assert [tuple(t for d in deltas if d.copy == copy for t in d.token_ids) for copy in range(3)] == wanted
    assert sorted(d.copy for d in deltas if d.finish_reason) == [0, 1, 2]


@pytest.mark.parametrize("leave, overlap", [("break", False), ("close", False), ("cancel", False), ("cancel", True)])
def test_a_consumer_that_goes_away_aborts_its_own_request_only(leave, overlap):
    """C071: it walks out after 2 pieces of 200; its blocks come back while others run, and they are as alone."""
    model = tiny_model()
    engine = engine_of(model, pages=200, overlap=overlap)

    async def reader(server, pieces):
        async for _ in server.stream(random_ids(3), max_new_tokens=200):
            pieces.append(1)

    async def main():
        async with AsyncEngine(engine) as server:
            mate = asyncio.create_task(tokens_of(server, random_ids(4), max_new_tokens=40))
            if leave == "break":
                async for _ in server.stream(random_ids(3), max_new_tokens=200):
                    break
                gc.collect()
            elif leave == "close":
                async with aclosing(server.stream(random_ids(3), max_new_tokens=200)) as deltas:
                    await anext(deltas), await anext(deltas)
            else:
                pieces = []
                task = asyncio.create_task(reader(server, pieces))
                await until(lambda: len(pieces) >= 2)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            await until(lambda: any(e.reason == "abort" for e in engine.trace.of(Ended)))
            return await mate

    assert run(main()) == list(solo(model, random_ids(4), 40))
    assert_all_came_back(engine)
    ended = {e.reason: e for e in engine.trace.of(Ended)}
    assert set(ended) == {"abort", "length"} and ended["abort"].new_tokens < 200 and ended["length"].new_tokens == 40


def test_a_consumer_that_leaves_before_it_was_taken_in():
    """Cancelled while its request still waits for the worker to look up: it is taken in and dropped, in that order."""
    engine = engine_of(tiny_model(), pages=200)
    gate = threading.Event()

    async def main():
        async with AsyncEngine(engine) as server:
            server._order(gate.wait)  # the worker is busy
            task = asyncio.create_task(server.generate(random_ids(3), max_new_tokens=200))
            await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            gate.set()
            assert await tokens_of(server, random_ids(2), max_new_tokens=1)
            await until(lambda: engine.idle)

    run(main())
    assert [(e.request, e.reason) for e in engine.trace.of(Ended)][0] == (0, "abort")
    assert_all_came_back(engine)


def test_what_is_wrong_with_a_request_is_raised_where_it_was_made():
    """C021: bad requests of every kind while another streams; it never hears of them, and later ones are served."""
    model = tiny_model()
    engine = engine_of(model)

    async def main():
        async with AsyncEngine(engine) as server:
            mate = asyncio.create_task(tokens_of(server, random_ids(4), max_new_tokens=30))
            for prompt, settings, error in (
                ([], {}, RequestError),
                ([97], {}, RequestError),
                (random_ids(300), {}, RequestError),
                (object(), {}, Exception),
                ([1], dict(no_such_setting=1), TypeError),
            ):
                with pytest.raises(error):
                    await server.generate(prompt, **settings)
                with pytest.raises(error):
                    await tokens_of(server, prompt, **settings)
            return await mate, await tokens_of(server, random_ids(5), max_new_tokens=3)

    assert run(main()) == (list(solo(model, random_ids(4), 30)), list(solo(model, random_ids(5), 3)))
    assert_all_came_back(engine)


def test_closing_ends_the_streams_and_the_worker():
    """Clean shutdown: what runs hears ``EngineStopped``, nothing is held, the thread is gone; closing again is nothing."""
    engine = engine_of(tiny_model(), pages=200)

    async def main():
        server = AsyncEngine(engine)
        started = asyncio.Event()

        async def reader():
            async for _ in server.stream(random_ids(3), max_new_tokens=200):
                started.set()

        task = asyncio.create_task(reader())
        await started.wait()
        await server.close()
        await server.close()
        with pytest.raises(EngineStopped, match="before this request had ended"):
            await task
        with pytest.raises(EngineStopped, match="was closed"):
            await server.generate(random_ids(3))
        return server

    server = run(main())
    assert not server._worker.is_alive()
    assert_all_came_back(engine)


def test_a_step_that_fails_is_told_to_everybody():
    model = tiny_model()
    engine = engine_of(model)
    hidden, calls = model.hidden, iter(range(100))

    def failing(ids_N, view):
        if next(calls) == 3:
            raise MemoryError("no room")
        return hidden(ids_N, view)

    model.hidden = failing

    async def main():
        async with AsyncEngine(engine) as server:
            both = (server.generate(random_ids(3), max_new_tokens=20), tokens_of(server, random_ids(4), max_new_tokens=20))
            return await asyncio.gather(*both, return_exceptions=True)

    for error in run(main()):
        assert isinstance(error, EngineStopped) and isinstance(error.__cause__, MemoryError)
    assert_all_came_back(engine)


def test_an_event_loop_that_is_gone_disturbs_nobody():
    """A consumer's loop ends in mid-stream without closing it; the worker serves the next loop."""
    model = tiny_model()
    engine = engine_of(model, pages=300)
    server = AsyncEngine(engine)
    loop = asyncio.new_event_loop()
    stream = server.stream(random_ids(3), max_new_tokens=200)
    apart(lambda: loop.run_until_complete(anext(stream)))
    loop.close()
    assert run(tokens_of(server, random_ids(4), max_new_tokens=5)) == list(solo(model, random_ids(4), 5))
    run(server.close())
    assert_all_came_back(engine)


def test_streams_that_are_guessed():
    """Speculation behind ``async for``: several tokens a step reach their streams in order; one reader leaves in mid-block."""
    model = tiny_model()
    draft = DraftModel(model, 4)
    engine = engine_of(model, pages=40, max_running=3, token_budget=40, speculate=draft, depths=Full())

    async def leave_early(server):
        async with aclosing(server.stream(random_ids(6, seed=20), max_new_tokens=30)) as deltas:
            async for _ in deltas:
                return

    async def main():
        async with AsyncEngine(engine) as server:
            asked = [tokens_of(server, random_ids(3 + i, seed=i), max_new_tokens=14, speculate=i != 2) for i in range(5)]
            streams = await asyncio.gather(*asked, leave_early(server))
            await until(lambda: not engine._requests and not server._tickets)
            return streams[:5]

    assert run(main()) == [list(solo(model, random_ids(3 + i, seed=i), 14)) for i in range(5)]
    assert_all_came_back(engine)
    assert any(event.accepted for event in engine.trace.of(Verified)) and draft.draft.cache.sequences == ()
