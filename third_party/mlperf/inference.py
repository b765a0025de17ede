r"""Prints the path of the pinned checkout of mlcommons/inference.

  bazel run //harness:submission -- --run_checker \
      --inference_dir=$(bazel run //third_party/mlperf:inference) ...

Bazel fetches the checkout at the first run. It has the reference
implementations and the submission checkers of all rounds from v3.1 to v6.1.
"""

from collections.abc import Sequence

import mlperf_inference_checkout

from saxml_ext.common import program


def main(argv: Sequence[str]) -> None:
  del argv
  print(mlperf_inference_checkout.ROOT)


if __name__ == '__main__':
  program.run(main)
