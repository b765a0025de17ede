#!/bin/sh
# Prints the commit of the sources for the labels of images, as Bazel's
# --workspace_status_command. A checkout with changes gets the suffix "-dirty".
# Without git or a checkout, nothing is printed.
export GIT_OPTIONAL_LOCKS=0
revision=$(git describe --always --dirty --abbrev=40 --exclude='*' 2>/dev/null) &&
  echo "STABLE_REVISION $revision"
exit 0
