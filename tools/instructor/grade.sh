#!/bin/sh
# grade.sh SUBMISSIONS GRADES [options of kvedu.grade]: grade a folder in a container that has no network,
# sees the submissions read-only, can write to GRADES and to memory alone, and has no rights to lose.
set -eu
[ $# -ge 2 ] || { echo "usage: grade.sh SUBMISSIONS GRADES [--jobs N …]" >&2; exit 2; }
engine=$(command -v podman || command -v docker) || { echo "podman or docker is needed" >&2; exit 2; }
submissions=$(realpath "$1")
mkdir -p "$2"
grades=$(realpath "$2")
shift 2
exec "$engine" run --rm -i --network none --read-only --tmpfs /tmp:size=4g --cap-drop ALL --security-opt no-new-privileges \
    --pids-limit 512 --memory 12g --user "$(id -u)" -v "$submissions:/submissions:ro" -v "$grades:/grades" \
    kvedu-grade /submissions --out /grades "$@"
