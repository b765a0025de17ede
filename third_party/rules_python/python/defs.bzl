"""All Python rules in one file, as rules_python's own defs.bzl."""

py_binary = native.py_binary
py_library = native.py_library
py_test = native.py_test
