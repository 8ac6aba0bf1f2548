"""`make test` runs its parts apart: what one of them notes is not in the outputs that another compares."""

import os
import subprocess
from pathlib import Path

import pytest
import run_tests


def test_every_part_has_a_record_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A board that a lab of `make gpu-dry` had left was once shown in the outputs of a solution notebook."""
    records = []

    def noted(*_: object, env: dict[str, str], **__: object) -> subprocess.CompletedProcess:
        records.append(Path(env["KVEDU_PROGRESS"]))
        assert records[-1].parent.is_dir() and not any(records[-1].parent.iterdir())
        records[-1].write_text("{}")
        return subprocess.CompletedProcess([], 0)

    monkeypatch.setattr(run_tests.subprocess, "run", noted)
    assert run_tests.main() == 0
    assert len(records) == len(set(records)) == 3
    assert Path(os.environ["KVEDU_PROGRESS"]) not in records
