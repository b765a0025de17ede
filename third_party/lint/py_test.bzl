"""The tests of this repository: one module each, run by absl's runner."""

load("@rules_python//python:py_test.bzl", _py_test = "py_test")

def py_test(name, srcs = None, deps = [], size = "small", timeout = None, **kwargs):
    """A test of one module, by default `name` and .py.

    Args:
      name: The name of the target and of its module.
      srcs: The module, by default `name` and .py.
      deps: The dependencies. absl is always one of them.
      size: The size of the test.
      timeout: The timeout. The default of small and medium tests is moderate,
        because a busy machine takes ten times as long as an idle one.
      **kwargs: More arguments of the rule.
    """
    if not timeout and size in ["small", "medium"]:
        timeout = "moderate"
    _py_test(
        name = name,
        size = size,
        timeout = timeout,
        srcs = srcs or [name + ".py"],
        deps = deps + ["@pypi//absl_py"],
        **kwargs
    )
