r"""Records the reference's answers of the bundled GPT-J.

    bazel run //bundled/gptj:reference -- \
        --output=harness/bundled/reference.json

`//bundled/summaries/baselines` prints baselines for its figures.
"""

from bundled.summaries import recording
from harness.benchmarks import gptj
from saxml_ext.common import program


def main(argv: list[str]) -> None:
  del argv
  recording.run(gptj.GPTJ)


if __name__ == '__main__':
  program.run(main)
