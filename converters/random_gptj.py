r"""Writes a Hugging Face GPT-J checkpoint with random weights, of any size.

  random_gptj --out=DIR --layers=28 --dim=4096 --heads=16 --rotary_dim=64 \
      --vocab=50401 --format=bin --shards=6

This program is random_hf restricted to GPT-J.
"""

from collections.abc import Sequence

from absl import flags

from converters import random_hf
from saxml_ext.common import program
from saxml_ext.families import gptj


def main(argv: Sequence[str]) -> None:
  random_hf.main(argv, only=gptj.FAMILY.name)


if __name__ == '__main__':
  flags.mark_flags_as_required(['out'])
  program.run(main)
