"""Converts a Llama checkpoint of Meta to a PAX checkpoint.

  convert_llama_ckpt --base=DIR --pax=OUT_DIR [--model-size=llama3_8b]

DIR has params.json and consolidated.NN.pth. Without params.json, --model-size
states the sizes. This program is convert_hf restricted to Llama, under the name
and with the flags that Sax uses.
"""

from collections.abc import Sequence

from absl import flags

from converters import convert_hf
from saxml_ext.common import program
from saxml_ext.families import llama

_SIZE = flags.DEFINE_enum(
  'model_size',
  None,
  list(llama.FAMILY.published),
  'The size of the model. With params.json or config.json, it is compared with'
  ' the sizes in the file.',
)

# The flag name of Sax's own converter.
flags.DEFINE_alias('model-size', 'model_size')


def main(argv: Sequence[str]) -> None:
  convert_hf.main(argv, llama.FAMILY.name, _SIZE.value or '')


if __name__ == '__main__':
  flags.mark_flags_as_required(['base', 'pax'])
  program.run(main)
