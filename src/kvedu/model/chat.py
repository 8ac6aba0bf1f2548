"""Chat templates: messages to the text a chat model was trained on.

A template is a Jinja program from a file somebody else wrote, so it runs in Jinja's
sandbox, which forbids reaching into Python objects and changing its arguments. Block
trimming and the few extra names are those of Hugging Face ``apply_chat_template``,
for which the published templates are written.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Mapping, NoReturn, Sequence

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from kvedu.errors import LoadError, RequestError

Message = Mapping[str, Any]


class ChatTemplate:
    """A compiled template. ``tokens``: names such as ``bos_token`` that it may print, with their strings.

    Raises ``LoadError`` when the source is not Jinja that the sandbox knows.
    """

    def __init__(self, source: str, tokens: Mapping[str, str] | None = None) -> None:
        self.source = source
        self._tokens = dict(tokens or {})
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise LoadError(f"the chat template does not compile, line {error.lineno}: {error.message}") from error

    def render(self, messages: Sequence[Message], add_generation_prompt: bool = True, **variables: Any) -> str:
        """The text of a conversation; ``add_generation_prompt`` ends it with the start of the model's answer.

        ``messages`` are dictionaries with ``role`` and ``content``; ``variables`` (``tools``, …)
        are handed to the template. Raises ``RequestError`` when the template refuses the
        messages, ``LoadError`` when it does something the sandbox forbids.
        """
        _check(messages)
        names = {"tools": None, "documents": None} | self._tokens | variables
        try:
            return self._template.render(
                messages=[dict(message) for message in messages], add_generation_prompt=add_generation_prompt, **names
            )
        except jinja2.exceptions.SecurityError as error:
            raise LoadError(f"the chat template does what the sandbox forbids: {error}") from error
        except Exception as error:  # a template is a program: any error in it concerns these messages
            raise RequestError(
                f"the chat template refuses these messages: {error}. Look at roles, their order, and content being text"
            ) from error


def _check(messages: Sequence[Message]) -> None:
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence) or not messages:
        raise RequestError(
            f"messages is {messages!r:.80}; wanted a list such as [{{'role': 'user', 'content': 'Hello'}}], not empty"
        )
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise RequestError(f"message {i} is {message!r:.80}; wanted a dictionary with a 'role' and a 'content'")


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


class _Generation(Extension):
    """``{% generation %}…{% endgeneration %}`` marks the model's own words for training; here it prints its body."""

    tags = {"generation"}

    def parse(self, parser: Any) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None,
            sort_keys: bool = False) -> str:
    """JSON as it is; Jinja's own filter would escape it for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
