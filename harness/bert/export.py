"""Writes a BERT as an ONNX file, or makes one with random weights.

export --model=DIRECTORY --precision=int8 --output=bert_int8.onnx
export --random_large --output=/tmp/bert_large
"""

from collections.abc import Sequence

from absl import flags

from harness.bert import checkpoint
from harness.bert import graph
from saxml_ext.common import flag_rules
from saxml_ext.common import program
from saxml_ext.common import user_path

_MODEL = flags.DEFINE_string(
  'model',
  None,
  'A Hugging Face directory of a BertForQuestionAnswering, or a file with the'
  " state_dict of BERT-large, such as the reference's model.pytorch.",
)
_RANDOM_LARGE = flags.DEFINE_bool(
  'random_large',
  False,
  'Instead of --model: write random weights in the size of BERT-large, for'
  ' speed measurements.',
)
_SEED = flags.DEFINE_integer('seed', 0, 'The seed of the random weights.', 0)
_PRECISION = flags.DEFINE_enum(
  'precision',
  graph.FLOAT32,
  graph.PRECISIONS,
  'The precision of the ONNX file. float32 and float16 run everywhere, int8'
  ' only in ONNX Runtime on CPUs.',
)
_FLOAT32_LAYERS = flags.DEFINE_string(
  'float32_layers',
  '',
  'With --precision=int8: a regular expression for the names of linear layers'
  ' that stay in float32, such as output.dense. Use it if int8 lowers F1 too'
  ' much. The layers of query, key and value have one name, attention.self.',
)
_OUTPUT = flags.DEFINE_string(
  'output',
  None,
  'The file to write, which ends in .onnx. With --random_large, it can also be'
  ' a directory for a checkpoint that every program here accepts as --model.',
)
flag_rules.act_only(
  'with --precision=int8',
  lambda: _PRECISION.value == graph.INT8,
  'float32_layers',
)
flag_rules.act_only('with --random_large', lambda: _RANDOM_LARGE.value, 'seed')

_SUFFIX = '.onnx'


def main(argv: Sequence[str]) -> None:
  del argv
  output = user_path.resolve(_OUTPUT.value)
  if bool(_MODEL.value) == _RANDOM_LARGE.value:
    raise SystemExit('export: pass either --model or --random_large')
  is_graph = output.endswith(_SUFFIX)
  if not is_graph and (_MODEL.value or _PRECISION.value != graph.FLOAT32):
    raise SystemExit(
      f'export: --output={_OUTPUT.value} does not end in {_SUFFIX}. Only a'
      ' float32 checkpoint of --random_large can be a directory.'
    )
  with program.exit_on('export'):
    made = (
      checkpoint.make_random(checkpoint.Config(), _SEED.value)
      if _RANDOM_LARGE.value
      else checkpoint.load(user_path.resolve(_MODEL.value))
    )
    if is_graph:
      graph.write(made, _PRECISION.value, output, _FLOAT32_LAYERS.value)
    else:
      checkpoint.save(made, output)
  print(f'Wrote {output}')


if __name__ == '__main__':
  flags.mark_flag_as_required('output')
  program.run(main)
