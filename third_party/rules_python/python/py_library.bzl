"""Bazel's native py_library under the label that rules_python gives it."""

py_library = native.py_library
