"""The tokenizer: text to ids and back, chats to ids.

The work is done by Hugging Face ``tokenizers``; this class fixes what a model needs
around it: which ids end a text, what a user's text may not do, and one way to build,
keep and load it. It can be built from GGUF metadata or from a Hugging Face folder.
"""

from __future__ import annotations

from functools import cached_property
from os import PathLike
from typing import Any, Iterable, Mapping, Sequence

import tokenizers

from kvedu.errors import LoadError, RequestError
from kvedu.model import tokenizer_files
from kvedu.model.chat import ChatTemplate, Message
from kvedu.model.control_guard import mark_controls, split_controls
from kvedu.model.token_text import TextRule, text_rule
from kvedu.model.tokenizer_gguf import backend_from_gguf, special_ids_from_gguf


class Tokenizer:
    """Text to token ids and back.

    ``backend`` does the work; ``eos_ids`` holds every id that ends a text (chat models
    have several), the other ids may be None. Control tokens are the backend's added
    tokens marked special. Raises ``LoadError`` when an id has no token, the decoder is
    of an unknown kind or the chat template does not compile.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        bos_id: int | None = None,
        eos_ids: tuple[int, ...] = (),
        pad_id: int | None = None,
        unk_id: int | None = None,
        chat_template: str | None = None,
    ) -> None:
        backend.no_truncation()  # a published file may carry both; here the caller decides
        backend.no_padding()
        self.backend = backend
        self.bos_id, self.eos_ids, self.pad_id, self.unk_id = bos_id, tuple(eos_ids), pad_id, unk_id
        self.chat_template = chat_template
        self.text_rule: TextRule = text_rule(backend.decoder)
        added = backend.get_added_tokens_decoder()
        self.special_ids = frozenset(i for i, token in added.items() if token.special)
        self._controls = {added[i].content: i for i in self.special_ids}
        self._plain = _without_controls(backend)
        for i in (bos_id, *self.eos_ids, pad_id, unk_id):
            if i is not None and self.token(i) is None:
                raise LoadError(f"special token id {i} has no token; the vocabulary has {self.vocab_size} ids")
        names = {"bos_token": bos_id, "eos_token": self.eos_ids[0] if self.eos_ids else None,
                 "pad_token": pad_id, "unk_token": unk_id}
        strings = {name: self.token(i) for name, i in names.items() if i is not None}
        self._template = None if chat_template is None else ChatTemplate(chat_template, strings)

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any]) -> Tokenizer:
        """From GGUF metadata (key to Python value). Raises ``LoadError`` naming a missing or unknown key."""
        template = metadata.get("tokenizer.chat_template")
        return cls(backend_from_gguf(metadata), **special_ids_from_gguf(metadata), chat_template=template)

    @classmethod
    def from_folder(cls, path: str | PathLike[str]) -> Tokenizer:
        """From a Hugging Face folder: ``tokenizer.json`` and the configs beside it.

        Every EOS id that the generation config, the model config or the tokenizer config
        names is kept. Raises ``LoadError`` naming the file or key in the way.
        """
        return cls(**tokenizer_files.read_folder(path))

    @classmethod
    def from_saved(cls, path: str | PathLike[str]) -> Tokenizer:
        """From a folder that ``save`` wrote: 0.2 s for 49,152 tokens. Raises ``LoadError`` if it is not whole."""
        return cls(**tokenizer_files.read_saved(path))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the tokenizer into the folder ``path`` (made if need be), to be read by ``from_saved``."""
        names = ("bos_id", "eos_ids", "pad_id", "unk_id", "chat_template")
        tokenizer_files.write_saved(path, self.backend, {name: getattr(self, name) for name in names})

    @cached_property
    def vocab_size(self) -> int:
        """One more than the largest id. A model's embedding may have more rows (padding), never fewer."""
        return max(self.backend.get_vocab().values(), default=-1) + 1

    def encode(self, text: str, *, special: bool = False, add_bos: bool = True) -> list[int]:
        """The ids of ``text``.

        ``special=False``: control-token strings inside the text are ordinary characters, so
        that a user's text cannot end a turn or open another one. ``special=True``: they
        become control tokens; for text that you or a chat template wrote. User-defined
        tokens, which are words of the vocabulary and control nothing, are always found.
        ``add_bos``: add what the model was trained to see around a text (BOS for Llama 3,
        nothing for SmolLM2 and Qwen). Characters that a vocabulary has no token for are
        dropped, as by the published tokenizers (SmolLM2's lacks six ASCII control bytes).
        Raises ``RequestError`` for a text that is not valid Unicode.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise RequestError(
                f"the text holds half a character (a lone surrogate) at position {error.start}; "
                "decode it from its bytes again, or replace it"
            ) from error
        backend = self.backend if special else self._plain
        return backend.encode(text, add_special_tokens=add_bos).ids

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """The text of ``ids``; control tokens are left out unless ``skip_special`` is False.

        Bytes that are not UTF-8 become U+FFFD. An id without a token (a padded embedding
        row) is no text. Raises ``RequestError`` for a negative id.
        """
        ids = list(ids)
        if ids and min(ids) < 0:
            raise RequestError(f"id {min(ids)} is negative; token ids run from 0 to {self.vocab_size - 1}")
        return self.backend.decode(ids, skip_special_tokens=skip_special)

    def token(self, token_id: int) -> str | None:
        """The token as the vocabulary spells it, or None if the id has none. Raises ``RequestError`` below 0."""
        if token_id < 0:
            raise RequestError(f"id {token_id} is negative; token ids run from 0 to {self.vocab_size - 1}")
        return self.backend.id_to_token(token_id)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes an id stands for inside a text; b"" for an id without a token."""
        token = self.token(token_id)
        return b"" if token is None else self.text_rule.token_bytes(token)

    def render(self, messages: Sequence[Message], add_generation_prompt: bool = True, **variables: Any) -> str:
        """The text of a conversation by the model's chat template (see ``ChatTemplate.render``)."""
        if self._template is None:
            raise RequestError("this model has no chat template (a base model?); encode a plain text instead")
        return self._template.render(messages, add_generation_prompt, **variables)

    def chat(self, messages: Sequence[Message], add_generation_prompt: bool = True, **variables: Any) -> list[int]:
        """The ids of a conversation.

        The template's control tokens become ids; the same strings inside a message stay
        ordinary text. To let messages control the turn, encode ``render(messages)`` with
        ``special=True``. Raises as ``render`` does.
        """
        marked, mark = mark_controls(messages, self._controls)
        text = self.render(marked, add_generation_prompt, **variables)
        if mark is None:
            return self.encode(text, special=True, add_bos=False)
        ids: list[int] = []
        for piece, is_control in split_controls(text, mark, self._controls):
            ids += [self._controls[piece]] if is_control else self.encode(piece, add_bos=False)
        return ids


def _without_controls(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The same tokenizer, blind to control-token strings. Shares the vocabulary; costs microseconds."""
    plain = tokenizers.Tokenizer(backend.model)
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        value = getattr(backend, part)
        if value is not None:
            setattr(plain, part, value)
    added = backend.get_added_tokens_decoder()
    plain.add_tokens([added[i] for i in sorted(added)])  # in this order they get the ids they have
    plain.encode_special_tokens = True
    return plain
