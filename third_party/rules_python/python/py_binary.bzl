"""Bazel's native py_binary under the label that rules_python gives it."""

py_binary = native.py_binary
