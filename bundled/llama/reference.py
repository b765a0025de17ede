r"""Records the reference's answers of the bundled Llama.

bazel run //bundled/llama:reference -- \
        --output=harness/bundled/llama/reference.json
"""

from bundled.summaries import recording
from harness.benchmarks import llama
from saxml_ext.common import program


def main(argv: list[str]) -> None:
  del argv
  recording.run(llama.LLAMA)


if __name__ == '__main__':
  program.run(main)
