"""Quantizes a PAX checkpoint to INT8 and reports the loss of accuracy.

  offline_quantize --input_dir=PAX_DIR --output_dir=INT8_DIR

Matrices become int8 with one float32 scale per output channel. The embedding,
the head, norms and biases stay unchanged. The program writes
quantization_report.txt and .html next to the checkpoint. With --articles the
report includes ROUGE and logits.

--calibration makes the result more accurate; see docs/quantize.md. The mode
that stock Sax calls int8 when it serves such a checkpoint is int8_weights here.
"""

from collections.abc import Sequence
import sys
import time

from absl import app
from absl import flags

from converters import output_flags
from converters.quantize import input_checkpoint
from converters.quantize import provenance
from converters.quantize import quantization
from converters.quantize import sample_texts
from saxml_ext.common import flag_rules
from saxml_ext.common import program
from saxml_ext.common import user_path
from saxml_ext.pax import checkpoint
from saxml_ext.pax import errors

# On a small GPT-J with uneven channels, values from 0 to 0.85 gave logits of
# the same quality. With 0 the summaries were most similar to those of float32.
_DEFAULT_SMOOTHING = 0.0

_INPUT_DIR = flags.DEFINE_string(
  'input_dir', None, 'The directory of the float PAX checkpoint.'
)
_OUTPUT_DIR = flags.DEFINE_string(
  'output_dir', None, 'The output directory of the INT8 checkpoint.'
)
_CONFIGS = flags.DEFINE_string(
  'quantization_configs',
  None,
  'The table of matrices that become int8, by its name in stock Sax: gptj or'
  ' gpt_neox. A checkpoint that does not match the table is refused. Default:'
  " the table of the checkpoint's family.",
)
_BITS = flags.DEFINE_integer(
  'number_bits',
  8,
  'The number of bits of a code. Smaller codes are stored as int8 too.',
  lower_bound=2,
  upper_bound=8,
)
_SOFTMAX = flags.DEFINE_bool(
  'quantize_softmax', False, "Quantize the head's matrix too."
)
_CLIPPING = flags.DEFINE_bool(
  'clipping',
  False,
  'Search for the bound of each channel with the least squared error. With'
  ' calibration, the inputs weight the errors.',
)
_SMOOTHING = flags.DEFINE_float(
  'smoothing',
  None,
  'Balance channels by powers of two, which does not change the float model.'
  " The value is the share of the inputs' spread that moves to the weights. 0"
  ' needs no calibration. A negative value turns smoothing off. Default:'
  f' {_DEFAULT_SMOOTHING:g} with calibration, otherwise off.',
  upper_bound=1,
)
_CALIBRATION = flags.DEFINE_string(
  'calibration',
  None,
  'The file of articles for calibration, in the schema of'
  ' cnn_dailymail_calibration.json (and of cnn_eval.json).',
)
_CALIBRATION_COUNT = flags.DEFINE_integer(
  'calibration_count',
  64,
  'The maximum number of articles for calibration; 0 means all.',
  lower_bound=0,
)
_GPTQ_INPUTS = flags.DEFINE_integer(
  'gptq_max_inputs',
  4096,
  'The maximum number of inputs of a matrix that is rounded with GPTQ. n'
  ' inputs need 32 n^2 bytes. 0 turns GPTQ off.',
  lower_bound=0,
  upper_bound=16384,
)
_ARTICLES = flags.DEFINE_string(
  'articles',
  None,
  'The file of articles to measure logits and ROUGE on, in the schema of'
  ' cnn_eval.json.',
)
_ARTICLE_COUNT = flags.DEFINE_integer(
  'article_count', 0, 'The maximum number of --articles; 0 means all.', 0
)
_REPORT = flags.DEFINE_bool('report', True, 'Write the report.')

flag_rules.act_only(
  'with --calibration',
  lambda: _CALIBRATION.value,
  'calibration_count gptq_max_inputs',
)
flag_rules.act_only('with --articles', lambda: _ARTICLES.value, 'article_count')
flag_rules.act_only('without --noreport', lambda: _REPORT.value, 'articles')
flags.DEFINE_alias('per_channel_clipping_optimization', 'clipping')


def _options() -> provenance.Options:
  calibrated = _CALIBRATION.value is not None
  smoothing = _SMOOTHING.value
  if smoothing is None:
    smoothing = _DEFAULT_SMOOTHING if calibrated else None
  elif smoothing < 0:
    smoothing = None
  elif smoothing > 0 and not calibrated:
    raise app.UsageError(
      f'--smoothing={smoothing:g} needs --calibration. Without it, only 0 is'
      ' possible, which balances only the weights.'
    )
  return provenance.Options(
    bits=_BITS.value,
    softmax=_SOFTMAX.value,
    clipping=_CLIPPING.value,
    smoothing=smoothing,
    gptq_inputs=_GPTQ_INPUTS.value if calibrated else 0,
  )


def _calibration(
  source: str, options: provenance.Options
) -> tuple[provenance.Record, quantization.Calibration | None]:
  if _CALIBRATION.value is None:
    return provenance.Record(options), None
  # They import JAX, which is not needed without calibration.
  from converters.quantize import calibration_run
  from converters.quantize import models

  model = models.open_model(source)
  articles = sample_texts.load_articles(
    user_path.resolve(_CALIBRATION.value), _CALIBRATION_COUNT.value
  )
  texts = sample_texts.from_articles(
    articles,
    sample_texts.load_tokenizer(model.reader.directory),
    model.max_positions,
  )
  calibration = calibration_run.Calibration(model, texts, options.gptq_inputs)
  record = provenance.Record(
    options, len(articles), texts.num_tokens, texts.crc32
  )
  return record, calibration.next_layer


def _run(source: str, pax: str) -> None:
  begin = time.monotonic()
  # Reading the articles may fail, so it comes before the slow part.
  articles = (
    sample_texts.load_articles(
      user_path.resolve(_ARTICLES.value), _ARTICLE_COUNT.value
    )
    if _ARTICLES.value
    else ()
  )
  options = _options()
  input_checkpoint.check_fits(_CONFIGS.value, checkpoint.Reader(source))
  record, calibration = _calibration(source, options)
  step_dir = quantization.quantize(
    source,
    pax,
    record,
    calibration,
    overwrite=output_flags.OVERWRITE.value,
    resume=output_flags.RESUME.value,
    measure=_REPORT.value,
  )
  print(f'Wrote {step_dir} in {time.monotonic() - begin:.1f} s.', flush=True)
  if _REPORT.value:
    from converters.quantize.report import evaluation  # It imports JAX.

    print()
    print(evaluation.report(source, pax, articles), end='')


def main(argv: Sequence[str]) -> None:
  del argv
  source, pax = map(
    input_checkpoint.root_of, (_INPUT_DIR.value, _OUTPUT_DIR.value)
  )
  try:
    _run(source, pax)
  except errors.CheckpointError as e:
    print(f'offline_quantize: {e}', file=sys.stderr)
    sys.exit(1)


if __name__ == '__main__':
  flags.mark_flags_as_required(['input_dir', 'output_dir'])
  program.run(main)
