"""The tests of this repository: one module each, run by absl's runner."""

load("@rules_python//python:py_test.bzl", _py_test = "py_test")

# The tag of tests that a py_tests runs; its name follows.
_PART_OF = "part_of_"
_RUNNER = "//third_party/lint:run_tests.py"

# A test that sets one of these attributes is not merged.
_ALONE = ["args", "env", "main", "shard_count", "tags"]

def py_test(
        name,
        srcs = None,
        deps = [],
        size = "small",
        timeout = None,
        alone = False,
        each_run = None,
        part_of = "tests",
        **kwargs):
    """A test of one module, by default `name` and .py.

    `bazel test //pkg:x_test` runs it. `bazel test //pkg/...` runs it as a part
    of `py_tests`, unless it is large or sets its timeout, args, env, main,
    shard_count or tags. In both cases, run_tests.py starts it, unless it sets
    its args, main or alone.

    Args:
      name: The name of the target and of its module.
      srcs: The module, by default `name` and .py.
      deps: The dependencies. absl is always one of them.
      size: The size of the test.
      timeout: The timeout. The default of small and medium tests is long,
        because a busy machine takes ten times as long as an idle one.
      alone: True if the test must be a program of its own, for example because
        it restarts itself.
      each_run: The names of methods, or parts of names. If they are given,
        `name` runs only at night, and "few_" + `name` runs these methods.
      part_of: The name of the `py_tests` that runs it.
      **kwargs: More arguments of the rule.
    """
    srcs = srcs or [name + ".py"]
    if not alone and "main" not in kwargs and "args" not in kwargs:
        started = {
            "args": ["%s/%s" % (native.package_name(), srcs[0]), "--"],
            "main": _RUNNER,
            "srcs": srcs + [_RUNNER],
        }
    else:
        started = {"main": name + ".py", "srcs": srcs}
    for key in _ALONE:
        alone = alone or key in kwargs
    if size not in ["small", "medium"]:
        alone = True
    elif timeout:
        alone = True
    else:
        timeout = "long"
    if part_of != "tests" and (alone or each_run):
        fail("%s has part_of, but it is a target of its own." % name)
    kwargs = dict(
        started,
        size = size,
        timeout = timeout,
        deps = deps + ["@pypi//absl_py"],
        **kwargs
    )
    if each_run:
        few = dict(
            kwargs,
            env = {"TESTBRIDGE_TEST_ONLY": " ".join(each_run)},
        )
        few.pop("shard_count", None)
        _py_test(name = "few_" + name, **few)
        kwargs["tags"] = ["nightly"]
    elif not alone:
        kwargs["tags"] = ["manual", _PART_OF + part_of]
    _py_test(name = name, **kwargs)

def py_tests(name, shard_count = None, tags = []):
    """Runs the modules of the package's py_test rules above it as one test.

    This saves process starts and imports; see run_tests.py.

    Args:
      name: "tests", or "tests_without_engine" if most tests of the package do
        not depend on the engine. Bazel then does not run these again when only
        the engine has changed.
      shard_count: The number of shards. Each runs a part of the modules.
      tags: The tags: "nightly" if only --config=nightly runs it.
    """
    rules = [
        rule
        for rule in native.existing_rules().values()
        if _PART_OF + name in rule.get("tags", [])
    ]

    # Shards take modules in turn, so that each has as many of the longer ones.
    merged = [
        test
        for size in ["medium", "small"]
        for test in sorted([
            rule["name"]
            for rule in rules
            if rule["size"] == size
        ])
    ]
    if not merged:
        fail("py_tests is not below a py_test that it runs.")
    folder = native.package_name()
    _py_test(
        name = name,
        size = "medium",
        timeout = "long",
        srcs = [_RUNNER],
        args = ["%s/%s.py" % (folder, test) for test in merged] + ["--"],
        main = _RUNNER,
        shard_count = shard_count,
        tags = tags,
        deps = [":" + test for test in merged],
    )
