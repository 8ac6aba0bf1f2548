#!/bin/sh
# Gradescope runs this once, when the autograder's image is built.
set -eu
home=${AUTOGRADER:-/autograder}
python=
for name in python3.13 python3.12 python3.11; do
    if command -v "$name" >/dev/null; then python=$name; break; fi
done
if [ -z "$python" ]; then
    apt-get update
    apt-get install -y python3.12 python3.12-venv || apt-get install -y python3.11 python3.11-venv
    python=$(command -v python3.12 || command -v python3.11)
fi
"$python" -m venv "$home/kvedu"
pip="$home/kvedu/bin/python -m pip --disable-pip-version-check install -q"
$pip torch --index-url https://download.pytorch.org/whl/cpu
grep -v '^torch==' "$home/source/constraints.txt" >"$home/constraints.txt"
$pip -c "$home/constraints.txt" "$home"/source/kvedu-*.whl ipython matplotlib ipywidgets
KVEDU_CACHE="$home/cache" "$home/kvedu/bin/python" -m kvedu.fetch
