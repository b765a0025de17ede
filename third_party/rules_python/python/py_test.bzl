"""Bazel's native py_test under the label that rules_python gives it."""

py_test = native.py_test
