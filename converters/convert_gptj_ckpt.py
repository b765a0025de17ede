"""Converts a Hugging Face GPT-J checkpoint to a PAX checkpoint.

  convert_gptj_ckpt --base=HF_DIR --pax=OUT_DIR [--dtype=bfloat16]

This program is convert_hf restricted to GPT-J, under the name that the guides
of Sax use.
"""

from collections.abc import Sequence

from absl import flags

from converters import convert_hf
from saxml_ext.common import program
from saxml_ext.families import gptj


def main(argv: Sequence[str]) -> None:
  convert_hf.main(argv, only=gptj.FAMILY.name)


if __name__ == '__main__':
  flags.mark_flags_as_required(['base', 'pax'])
  program.run(main)
