"""Compares a PAX checkpoint with its source checkpoint.

  verify_ckpt --base=HF_DIR --pax=PAX_DIR
  verify_ckpt --source=PAX_DIR --pax=INT8_DIR

The program prints one line for each variable: name, shape, type and the largest
absolute difference. A float variable is compared with the conversion of the
source to its type. An int8 variable is compared with the value of the source.
If there is a manifest, checksums are compared too. With --logits, both models
also run on sample texts.

Exits with 0 if all variables match, and with 1 if any differ, are missing or
are unexpected.
"""

from collections.abc import Callable, Iterator, Sequence
import os
import sys

from absl import app
from absl import flags
from rich import box
from rich import console as rich_console
from rich import table as rich_table

from converters import checkpoint_flags
from converters.quantize import input_checkpoint
from converters.quantize import models
from converters.quantize import sample_texts
from converters.verify import comparison
from converters.verify import logit_comparison
from saxml_ext.common import flag_rules
from saxml_ext.common import program
from saxml_ext.common import user_path
from saxml_ext.pax import checkpoint
from saxml_ext.pax import errors

_SOURCE = flags.DEFINE_string(
  'source', None, 'The float PAX checkpoint that --pax was made from.'
)
_LOGITS = flags.DEFINE_bool(
  'logits',
  False,
  "Also compare the engine's logits of --pax with those of --base in"
  ' transformers on PyTorch, or with those of --source in the engine.',
)
_TEXT = flags.DEFINE_multi_string(
  'text', [], 'A text to compare logits on. May be repeated. Default: a poem.'
)
_ARTICLES = flags.DEFINE_string(
  'articles',
  None,
  'The file of articles to compare logits on, in the schema of cnn_eval.json.'
  ' Like the report of offline_quantize, this uses the first 32.',
)
_TOLERANCE = flags.DEFINE_float(
  'logit_tolerance',
  1e-4,
  'The largest accepted difference between logits of float models.',
  lower_bound=0,
)

flag_rules.act_only('with --base', lambda: checkpoint_flags.BASE.value, 'lora')
flag_rules.act_only(
  'without --lora', lambda: not checkpoint_flags.LORA.value, 'logits'
)
flag_rules.act_only(
  'with --logits', lambda: _LOGITS.value, 'text articles logit_tolerance'
)
flag_rules.act_only('without --articles', lambda: not _ARTICLES.value, 'text')

_PLAIN_WIDTH = 200
# Percy Bysshe Shelley, "Ozymandias", 1818.
_POEM = (
  'I met a traveller from an antique land, who said: "Two vast and trunkless '
  'legs of stone stand in the desert. Near them, on the sand, half sunk, a '
  'shattered visage lies, whose frown, and wrinkled lip, and sneer of cold '
  'command, tell that its sculptor well those passions read which yet '
  'survive, stamped on these lifeless things, the hand that mocked them, and '
  'the heart that fed."'
)


def _print_table(rows: Sequence[comparison.Comparison]) -> None:
  table = rich_table.Table(box=box.SIMPLE)
  for title in ('variable', 'type and shape', 'max abs difference', ''):
    table.add_column(title, overflow='fold')
  for row in rows:
    difference = '-'
    if row.max_difference is not None:
      difference = f'{row.max_difference:g}'
    notes = ': '.join(filter(None, (row.note, row.problem)))
    table.add_row(row.name, row.actual, difference, notes)
  # Shapes contain square brackets, so rich's markup is off. Files get all
  # columns.
  width = None if sys.stdout.isatty() else _PLAIN_WIDTH
  rich_console.Console(markup=False, highlight=False, width=width).print(table)


def _texts(pax: str) -> sample_texts.Texts:
  model = models.open_model(pax)
  tokenizer = sample_texts.load_tokenizer(model.reader.directory)
  longest = model.max_positions
  if _ARTICLES.value:
    articles = sample_texts.load_articles(user_path.resolve(_ARTICLES.value))[
      : sample_texts.LOGIT_ARTICLES
    ]
    return sample_texts.from_articles(articles, tokenizer, longest)
  return sample_texts.from_texts(_TEXT.value or [_POEM], tokenizer, longest)


def _compare(pax: str) -> Iterator[comparison.Comparison]:
  logits: Callable[
    [str, str, sample_texts.Texts, float], Iterator[comparison.Comparison]
  ]
  if checkpoint_flags.BASE.value:
    opened = checkpoint_flags.open_base()
    base = opened.directory
    if _LOGITS.value and not os.path.isfile(os.path.join(base, 'config.json')):
      raise errors.CheckpointError(
        f'--{_LOGITS.name} has no effect, because transformers reads only'
        f' directories of Hugging Face, not {base}. Leave the flag out.'
      )
    yield from comparison.compare_with_hf(opened, pax)
    logits = logit_comparison.compare_with_hf
  else:
    base = input_checkpoint.root_of(_SOURCE.value)
    yield from comparison.compare_with_pax(base, pax)
    logits = logit_comparison.compare_with_pax
  specs = checkpoint.Reader(pax).specs.values()
  if flag_rules.given([_TOLERANCE.name]) and any(
    spec.dtype == 'int8' for spec in specs
  ):
    raise errors.CheckpointError(
      f'--logit_tolerance={_TOLERANCE.value:g} has no effect, because {pax} is'
      ' int8 and its report states the limits. Leave the flag out.'
    )
  if _LOGITS.value:
    yield from logits(base, pax, _texts(pax), _TOLERANCE.value)


def main(argv: Sequence[str]) -> None:
  del argv
  if bool(checkpoint_flags.BASE.value) == bool(_SOURCE.value):
    raise app.UsageError('Set exactly one of --base and --source.')
  source = checkpoint_flags.BASE.value or input_checkpoint.root_of(
    _SOURCE.value
  )
  pax = input_checkpoint.root_of(checkpoint_flags.PAX.value)
  try:
    rows = list(_compare(pax))
    checked = len(checkpoint.Reader(pax).manifest)
  except errors.CheckpointError as e:
    print(f'verify_ckpt: {e}', file=sys.stderr)
    sys.exit(1)
  _print_table(rows)
  logits = sum(row.name.startswith(comparison.LOGITS) for row in rows)
  what = f'{len(rows) - logits} variables' + (
    f' and {logits} comparisons of logits' if logits else ''
  )
  bad = sum(bool(row.problem) for row in rows)
  if bad:
    print(f'{bad} of {what} do not match {source}.')
    sys.exit(1)
  print(f'All {what} match {source}. {checked} checksums match.')


if __name__ == '__main__':
  flags.mark_flags_as_required(['pax'])
  program.run(main)
