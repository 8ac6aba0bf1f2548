"""The engine for asyncio: many consumers, one worker thread that steps the engine for all of them."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextlib import aclosing
from typing import Any, AsyncIterator, Callable

from kvedu.engine.engine import Engine
from kvedu.errors import KveduError
from kvedu.model.completion import Completion, Delta
from kvedu.model.request import Prompt


class EngineStopped(KveduError):
    """The worker has stopped: it was closed, or a step failed (the cause is attached)."""


class _Ticket:
    """One consumer's request: where its deltas go. Only the worker reads or writes ``number``."""

    def __init__(self) -> None:
        self.loop, self.inbox = asyncio.get_running_loop(), asyncio.Queue()
        self.number: int | None = None

    def put(self, item: Delta | list[Completion] | BaseException) -> None:
        """From the worker, any time; a loop that is closed has nobody who listens."""
        try:
            self.loop.call_soon_threadsafe(self.inbox.put_nowait, item)
        except RuntimeError:
            pass


class AsyncEngine:
    """An ``Engine`` behind ``async for``. The engine belongs to the worker thread from now until ``close``.

    A consumer that goes away (breaks out, is cancelled, even before its request was taken in) aborts its own
    request and nobody else's. What is wrong with a request is raised where it was made. A step that fails
    ends all streams with ``EngineStopped``. Deltas wait in memory until they are read: at most
    ``max_new_tokens`` of them for each completion. Records of requests are dropped when they have ended.

    >>> async with AsyncEngine(engine) as server:                          # doctest: +SKIP
    ...     async for delta in server.stream("The capital of France is"):
    ...         print(delta.text, end="")
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._commands: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._tickets: dict[int, _Ticket] = {}
        self._stopping = False
        self._failure: BaseException | None = None
        self._worker = threading.Thread(target=self._work, name="kvedu-engine", daemon=True)
        self._worker.start()

    async def __aenter__(self) -> AsyncEngine:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Abort what runs, end all streams with ``EngineStopped`` and wait for the worker. Twice is fine."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        await asyncio.to_thread(self._worker.join)

    async def stream(self, prompt: Prompt, **settings: Any) -> AsyncIterator[Delta]:
        """Deltas of one request as they come, of all its copies; settings as in ``Engine.add``, whose errors it raises."""
        async with aclosing(self._serve(prompt, settings)) as items:
            async for item in items:
                if isinstance(item, Delta):
                    yield item

    async def generate(self, prompt: Prompt, **settings: Any) -> list[Completion]:
        """The completions of one request, ``n`` of them. Cancelling it aborts the request."""
        async with aclosing(self._serve(prompt, settings)) as items:
            return [item async for item in items][-1]

    async def _serve(self, prompt: Prompt, settings: dict[str, Any]) -> AsyncIterator[Delta | list[Completion]]:
        """Its deltas, then its completions."""
        ticket = _Ticket()
        settings = {"arrived": self.engine.clock()} | settings
        self._order(lambda: self._add(ticket, prompt, settings))
        item = None
        try:
            while not isinstance(item, list):
                item = await ticket.inbox.get()
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            if not isinstance(item, list | BaseException):
                self._order(lambda: self._drop(ticket), strict=False)

    def _order(self, command: Callable[[], None], strict: bool = True) -> None:
        """Have the worker do something before its next step, in the order of the calls."""
        with self._wake:
            if strict and (self._stopping or not self._worker.is_alive()):
                raise EngineStopped("this engine was closed; make a new AsyncEngine") from self._failure
            self._commands.append(command)
            self._wake.notify()

    # -- in the worker -------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while self._listen():
                self._deliver(self.engine.step())
        except BaseException as error:  # a step failed: nobody will get another token
            self._failure = error
        with self._wake:
            self._stopping = True
            commands, self._commands = self._commands, deque()
        for command in commands:  # late requests hear of it like the others
            command()
        tickets, self._tickets = self._tickets, {}
        for ticket in tickets.values():
            stopped = EngineStopped("the engine stopped before this request had ended")
            stopped.__cause__ = self._failure
            ticket.put(stopped)
        for number in tickets:
            self.engine.forget(number)

    def _listen(self) -> bool:
        """Do what was ordered; wait for orders while there is nothing to compute. False when it is time to stop."""
        while True:
            with self._wake:
                while not self._commands and not self._stopping and self.engine.idle:
                    self._wake.wait()
                commands, self._commands = self._commands, deque()
                stopping = self._stopping
            for command in commands:
                command()
            if stopping or not self.engine.idle:
                return not stopping

    def _add(self, ticket: _Ticket, prompt: Prompt, settings: dict[str, Any]) -> None:
        try:
            ticket.number = self.engine.add(prompt, **settings)
            self._tickets[ticket.number] = ticket
        except Exception as error:
            ticket.put(error)

    def _deliver(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            if delta.prompt in self._tickets:
                self._tickets[delta.prompt].put(delta)
        for number in {delta.prompt for delta in deltas if delta.finish_reason}:
            if number in self._tickets and self.engine.done(number):
                self._tickets[number].put(self.engine.results(number))
                self._drop(self._tickets[number])

    def _drop(self, ticket: _Ticket) -> None:
        if self._tickets.pop(ticket.number, None) is not None:
            self.engine.forget(ticket.number)
