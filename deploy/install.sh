#!/usr/bin/env bash
# Builds a cell's programs and copies them completely to a directory:
#
#   deploy/install.sh /opt/sax
#   deploy/install.sh /opt/sax saxutil      installs only this program
#
# The copies need neither this checkout nor Bazel. They only need the Python
# 3.11 with which Bazel built them, at the same path.
set -euo pipefail

if (($# < 1)) || [[ $1 != /* ]]; then
  echo "usage: $0 DIRECTORY [PROGRAM...]" >&2
  echo "DIRECTORY is an absolute path such as /opt/sax." >&2
  exit 2
fi
directory=$1
shift
cd "$(dirname "${BASH_SOURCE[0]}")/.."

programs=(
  saxml_ext/admin/admin_config
  saxml_ext/admin/admin_server
  saxml_ext/client/saxutil
  saxml_ext/http/gateway
  saxml_ext/server/server
)
if (($#)); then
  chosen=()
  for name; do
    for program in "${programs[@]}"; do
      [[ ${program##*/} != "$name" ]] || chosen+=("$program")
    done
  done
  if ((${#chosen[@]} != $#)); then
    echo "$0: one of these programs is unknown: $*." >&2
    echo "Available: ${programs[*]##*/}" >&2
    exit 2
  fi
  programs=("${chosen[@]}")
fi
labels=()
for program in "${programs[@]}"; do
  labels+=("//${program%/*}:${program##*/}")
done
./bazelw build "${labels[@]}"

mkdir -p "$directory"
for program in "${programs[@]}"; do
  name=${program##*/}
  echo "copying $name to $directory"
  # The new files replace the old directory at the end, so running programs keep
  # their files.
  rm -rf "$directory/.$name.new" "$directory/.$name.old"
  mkdir "$directory/.$name.new"
  cp -L "bazel-bin/$program" "$directory/.$name.new/$name"
  cp -rL "bazel-bin/$program.runfiles" "$directory/.$name.new/$name.runfiles"
  # With rules_python, Python finds its library through this relative link.
  while read -r link; do
    ln -sfn "$(readlink "bazel-bin/$program.runfiles/$link")" \
      "$directory/.$name.new/$name.runfiles/$link"
  done < <(cd "bazel-bin/$program.runfiles" &&
    find . -path '*.venv/bin/python*' -type l)
  chmod -R u+w,a+rX "$directory/.$name.new"
  [[ ! -e $directory/$name ]] || mv "$directory/$name" "$directory/.$name.old"
  mv "$directory/.$name.new" "$directory/$name"
  rm -rf "$directory/.$name.old"
done
