#!/usr/bin/env bash
# Compiles every .in file here into its lock, all versions pinned and hashed, for
# Python 3.11 on Linux.
#
#   third_party/python/update_locks.sh                    keep what still fits
#   third_party/python/update_locks.sh --upgrade          newest of everything
#   third_party/python/update_locks.sh --upgrade-package jax
#
# All arguments go to `uv pip compile`. uv comes from PATH, else into a
# temporary virtual environment.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

if ! uv=$(command -v uv); then
  python3.11 -m venv "$scratch/venv"
  "$scratch/venv/bin/pip" --quiet install --require-hashes \
    --requirement third_party/python/uv.txt
  uv=$scratch/venv/bin/uv
fi

platform=manylinux_2_28

compile() {
  local group=$1
  shift
  # Indexes and find-links of the machine that compiles stay out of the lock.
  # The annotations are not decoration: the repository rules read who needs
  # whom from them.
  "$uv" --config-file third_party/python/uv.toml pip compile \
    --quiet --python-version 3.11 --python-platform "x86_64-$platform" \
    --generate-hashes --annotation-style split --no-emit-index-url \
    --no-emit-find-links --no-header "$@" \
    "third_party/python/$group.in" -o "third_party/python/$group.lock"
}

# Adds the hashes that a line "# add-hash <package> <hash>" of GROUP.in names.
add_hashes() {
  local group=$1 package hash
  while read -r package hash; do
    grep -q -- "--hash=$hash" "third_party/python/$group.lock" ||
      sed -i "s|^\($package==[^ ]*\) .*|&\n    --hash=$hash \\\\|" \
        "third_party/python/$group.lock"
  done < <(sed -n 's/^# add-hash //p' "third_party/python/$group.in")
}

compile requirements "$@"
# Packages that both groups hold must agree, since one program may use both.
compile torch --constraint third_party/python/requirements.lock "$@"
add_hashes torch
# Its wheels ask for a newer glibc.
platform=manylinux_2_31 compile libtpu "$@"
# With the extra in the lock, from which rules_python learns of NVIDIA's wheels.
compile cuda --no-strip-extras \
  --constraint third_party/python/requirements.lock "$@"
compile peers --constraint third_party/python/requirements.lock "$@"
compile emulators --constraint third_party/python/requirements.lock "$@"
compile lint --constraint third_party/python/requirements.lock "$@"
# Not the first group's versions: transformers differs. torch comes from its own
# group; torchvision is imported by nothing that the benchmark uses.
compile openvino --constraint third_party/python/torch.lock \
  --override <(printf '%s; python_version < "3"\n' torch torchvision) "$@"

# uv itself, for ./bazelw.
{
  echo "# uv, with which ./bazelw gets a Python 3.11 where apt-get offers none."
  echo "# Written by update_locks.sh."
  echo uv | "$uv" --no-config pip compile --quiet --generate-hashes \
    --no-header --no-annotate --no-emit-index-url --no-emit-find-links "$@" -
} >"$scratch/uv.txt"
mv "$scratch/uv.txt" third_party/python/uv.txt
