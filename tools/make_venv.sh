#!/bin/sh
# Make the virtual environment that `make` uses: make_venv.sh FOLDER EXTRAS
# Ends with one clear sentence where something is missing.
set -u
venv=$1
extras=$2
log=$venv/pip.log
need_gib=4

fail() {
    echo "kvedu: $*" >&2
    exit 1
}

newest_python() {
    for name in ${KVEDU_PYTHON:-python3.13 python3.12 python3.11 python3 python}; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            echo "$name"
            return
        fi
    done
}

explain() {
    if grep -qiE 'no space left on device|errno 28|disk quota exceeded' "$log"; then
        fail "the disk is full: free some space (the environment needs some $need_gib GiB, twice that where PyTorch comes with CUDA) and run make again."
    elif grep -qiE 'name resolution|newconnectionerror|connection (refused|reset)|network is unreachable|proxyerror|readtimeout|connecttimeout|nodename nor servname|failed to resolve|max retries exceeded' "$log"; then
        fail "the package index could not be reached: connect to the network (or set your proxy) and run make again; the details are in $log."
    fi
    tail -n 15 "$log" >&2
    fail "pip could not install the packages: the last lines of $log are above."
}

python=$(newest_python)
[ -n "$python" ] || fail "no Python 3.11 or newer was found: install one (python.org, or your system's package manager) and run make again."

mkdir -p "$venv" || fail "the folder $venv cannot be written: check its permissions."
free_kib=$(df -Pk "$venv" | awk 'NR == 2 { print $4 }')
if [ ! -x "$venv/bin/python" ] && [ "${free_kib:-0}" -lt $((need_gib * 1024 * 1024)) ]; then
    fail "only $((free_kib / 1024)) MiB of disk are free here and the environment needs about $need_gib GiB: free some space and run make again."
fi

if [ -x "$venv/bin/python" ] && ! "$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    rm -rf "$venv"  # left by a Python that is too old or gone
fi
if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    echo "== making $venv with $("$python" --version)"
    "$python" -m venv "$venv" ||
        fail "$python cannot make a virtual environment: install its venv module (on Debian and Ubuntu: apt install python3-venv) and run make again."
fi

: >"$log"
echo "== installing the packages of constraints.txt into $venv (some minutes the first time)"
pip() { "$venv/bin/python" -m pip --disable-pip-version-check install --log "$log" -c constraints.txt "$@"; }
torch=$(sed -n 's/^\(torch==[^ ;]*\).*/\1/p' constraints.txt)
pip "$torch" || explain
pip -e ".[$extras]" || explain
touch "$venv/ready"
