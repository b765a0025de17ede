"""Defines the flags of the benchmark, and the settings that they stand for."""

from collections.abc import Sequence
import dataclasses
import os
import tempfile
from typing import Any

from absl import flags

from benchmarks import contenders
from benchmarks import presets
from benchmarks import random_model
from benchmarks import settings as settings_lib
from benchmarks import worker as worker_lib
from saxml_ext.common import flag_rules
from saxml_ext.common import user_path

_ENGINES = flags.DEFINE_list(
  'engines',
  None,
  'The contenders, such as ours_int8, or ct2 for all its types. Default: all.'
  ' With --family=llama: ours and CTranslate2 in int8, llama.cpp in Q8_0 and'
  ' Q4_0, and transformers; with 8b, the first three. With --model=6b:'
  ' ours_int8,ct2_int8. With several widths: ours and CTranslate2 in int8 and'
  ' float32, and transformers in float32.',
)
_MODES = flags.DEFINE_list(
  'modes', None, 'beam, greedy. Default: both; with several widths, only beam.'
)
_SET = flags.DEFINE_enum(
  'set',
  'fixed',
  list(settings_lib.SETS),
  'The request set. fixed: --batch prompts of --prompt tokens with answers of'
  ' --new_tokens. ragged: --requests prompts of about --prompt tokens with'
  ' answers of 30 to 128 tokens.',
)
FAMILY = flags.DEFINE_enum(
  'family', contenders.GPTJ, contenders.FAMILIES, 'The family of the model.'
)
_MODEL = flags.DEFINE_enum(
  'model',
  None,
  list(presets.OF_MODEL),
  'Of GPT-J, random (the default): a small model with random weights; bundled:'
  ' the trained model; 6b: random weights in the size of GPT-J 6B, which need 12'
  ' GB in --cache, and 6 GB more for CTranslate2. Of Llama, random weights in'
  ' the sizes of 1b (the default): Llama 3.2 1B; 8b_4layers: four layers and the'
  ' head of Llama 3 8B; 8b: all of it, which needs 16 GB in --cache, and 8 GB'
  ' more for each other engine.',
)
flags.DEFINE_integer(
  'layers', None, 'Layers. Default: those of --model, or 4.', 1
)
flags.DEFINE_integer(
  'dim', None, 'Model dimension. Default: 512; with 6b, 4096.', 1
)
flags.DEFINE_integer('heads', None, 'Heads. Default: 4; with 6b, 16.', 1)
flags.DEFINE_integer('rotary', None, 'Rotated dims of a head. Default: 64.', 2)
flags.DEFINE_integer(
  'vocab', None, 'Vocabulary size. Default: that of --model, or 50400.', 16
)
_BATCH = flags.DEFINE_list(
  'batch',
  None,
  'The numbers of requests of the fixed set to measure. Default: 8; with'
  ' --family=llama, 1,8,32; with 8b, 1,8.',
)
_REQUESTS = flags.DEFINE_list(
  'requests', ['256'], 'The numbers of requests of the ragged set to measure.'
)
flags.DEFINE_integer(
  'prompt',
  None,
  'The length of prompts in tokens; the mean length in the ragged set. Default:'
  ' 256; with 6b or 8b, 64.',
  1,
)
flags.DEFINE_integer(
  'new_tokens',
  None,
  'The length of answers of the fixed set in tokens. Default: 64; with 6b or 8b, 16;'
  ' with several widths, 32.',
  1,
)
_BEAMS = flags.DEFINE_list(
  'beams',
  ['4'],
  'The number of beams of mode beam. Several widths, such as 4,8,30,100, are'
  ' measured one after the other. Widths above 4 have fewer requests. The n'
  ' best answers of the engines are compared.',
)
_SLOTS = flags.DEFINE_integer(
  'slots', 32, 'The maximum number of requests our engine decodes together.', 1
)
_THREADS = flags.DEFINE_integer(
  'threads', 1, 'The number of threads and of cores of each engine.', 1
)
AVX2 = flags.DEFINE_bool(
  'avx2', False, 'Limit all engines to AVX2, even if the processor has more.'
)
flags.DEFINE_integer(
  'rounds',
  None,
  'The number of rounds. Default: 5; with 6b, Llama or several widths, 3.',
  1,
)
_OUT = flags.DEFINE_string(
  'out', 'results/bench', 'The directory for logs and the plot.'
)
_CACHE = flags.DEFINE_string(
  'cache',
  os.path.join(tempfile.gettempdir(), f'gptj_sax_bench_{os.getuid()}'),
  'The directory that caches the random model and its converted forms.',
)
_LLAMA_CPP = flags.DEFINE_string(
  'llama_cpp',
  None,
  'The directory with the built llama-cpp-python; docs/benchmarks.md has the'
  ' command that builds it.',
)

flag_rules.act_only(
  'with random weights', lambda: _MODEL.value != 'bundled', 'layers vocab'
)
flag_rules.act_only(
  'with --model=random or --model=6b',
  lambda: _MODEL.value != 'bundled' and FAMILY.value == contenders.GPTJ,
  'dim heads rotary',
)
flag_rules.act_only(
  'with --family=gptj',
  lambda: FAMILY.value == contenders.GPTJ,
  'modes beams set',
)
flag_rules.act_only(
  'with --family=llama and llama_cpp in --engines',
  lambda: any(c.engine == contenders.LLAMA_CPP for c in _contenders()),
  'llama_cpp',
)
flag_rules.act_only(
  'with --set=ragged', lambda: _SET.value == 'ragged', 'requests'
)
flag_rules.act_only(
  'with --set=fixed', lambda: _SET.value == 'fixed', 'batch new_tokens'
)
flag_rules.act_only(
  'with --set=fixed or random weights',
  lambda: _SET.value == 'fixed' or _MODEL.value != 'bundled',
  'prompt',
)
flag_rules.act_only(
  'with beam in --modes',
  lambda: settings_lib.BEAM in (_MODES.value or settings_lib.MODES),
  'beams',
)
flag_rules.act_only(
  'with an engine of ours in --engines',
  lambda: any(
    name.startswith(contenders.OURS)
    for name in _ENGINES.value or [contenders.OURS]
  ),
  'slots trace',
)

_BUNDLED = os.path.join(worker_lib.ROOT, 'harness', 'bundled')


def settings_from_flags() -> settings_lib.Settings:
  """Returns the settings from the flags; writes the random model if needed.

  Raises:
    ValueError: The flags contradict each other.
  """
  widths = _widths()
  names = _MODES.value or settings_lib.MODES[: None if len(widths) == 1 else 1]
  if FAMILY.value == contenders.LLAMA:
    names = (settings_lib.GREEDY,)
  modes = settings_lib.modes(names, widths)
  preset = _preset(len(widths) > 1)
  counts = preset.counts
  if _SET.value == 'ragged':
    counts = _counts(_REQUESTS.value, 'requests')
  cache = user_path.resolve(_CACHE.value)
  articles = tokenizer = None
  engines = contenders.choose(preset.engines, preset.family)
  llama_cpp = user_path.resolve(_LLAMA_CPP.value)
  for contender in engines:
    if contender.engine == contenders.LLAMA_CPP and llama_cpp is None:
      raise ValueError(
        f'{contender.name} needs --llama_cpp, the directory with the built'
        ' llama-cpp-python. Build it with the command in docs/benchmarks.md, or'
        ' leave llama_cpp out of --engines.'
      )
  if _MODEL.value == 'bundled':
    model = os.path.join(_BUNDLED, 'model')
    articles = os.path.join(_BUNDLED, 'eval.json')
    tokenizer = os.path.join(model, 'tokenizer.json')
  else:
    model = random_model.write_sizes(
      cache, preset.family, preset.sizes, preset.weights
    )
  return settings_lib.Settings(
    model=model,
    cache=cache,
    out=user_path.resolve(_OUT.value),
    articles=articles,
    tokenizer=tokenizer,
    request_set=_SET.value,
    modes=modes,
    engines=engines,
    counts=counts,
    prompt=preset.prompt,
    new_tokens=preset.new_tokens,
    beams=widths[0],
    slots=_SLOTS.value,
    cores=worker_lib.idlest_cores(_THREADS.value),
    rounds=preset.rounds,
    trial_new_tokens=preset.trial_new_tokens,
    llama_cpp=llama_cpp,
  )


def _widths() -> tuple[int, ...]:
  """Returns the widths in --beams; raises ValueError if one is not a number."""
  try:
    widths = tuple(sorted({int(text) for text in _BEAMS.value}))
  except ValueError:
    widths = ()
  if not widths:
    raise ValueError(
      f'--beams is {",".join(_BEAMS.value)!r}. Use numbers such as 4,8,30,100.'
    )
  return widths


def _preset(widths: bool) -> presets.Preset:
  """Returns the preset of --model, changed by the other flags.

  Raises:
    ValueError: The family has no such model, or --batch is not positive.
  """
  llama = FAMILY.value == contenders.LLAMA
  name = _MODEL.value or ('1b' if llama else 'random')
  preset = presets.OF_MODEL[name]
  if preset.family != FAMILY.value:
    known = [
      n for n, p in presets.OF_MODEL.items() if p.family != preset.family
    ]
    raise ValueError(
      f'--model={name} is not of --family={FAMILY.value}. Use'
      f' --family={preset.family}, or a --model of {", ".join(known)}.'
    )
  if widths:
    preset = presets.compare_widths(preset)
  given = _given(
    engines='engines', prompt='prompt', new_tokens='new_tokens', rounds='rounds'
  )
  sizes = _given(
    num_layers='layers',
    model_dim='dim',
    num_heads='heads',
    rotary_dim='rotary',
    vocab_size='vocab',
  )
  if 'model_dim' in sizes:
    sizes['hidden_dim'] = 4 * sizes['model_dim']
  if _BATCH.value:
    given['counts'] = _counts(_BATCH.value, 'batch')
  return dataclasses.replace(
    preset, sizes=dataclasses.replace(preset.sizes, **sizes), **given
  )


def _given(**names: str) -> dict[str, Any]:
  """Returns the values of the flags that are set, by the name of a field."""
  values = {field: flags.FLAGS[name].value for field, name in names.items()}
  return {field: value for field, value in values.items() if value is not None}


def _counts(words: Sequence[str], flag: str) -> tuple[int, ...]:
  """Returns the numbers in a flag, ascending.

  Raises:
    ValueError: One of them is not a positive number.
  """
  for word in words:
    if not word.isdecimal() or int(word) < 1:
      raise ValueError(
        f'--{flag} has {word!r}. Use positive numbers, such as 8 or 1,8,32.'
      )
  return tuple(sorted({int(word) for word in words}))


def _contenders() -> tuple[contenders.Contender, ...]:
  """Returns the contenders of the run, or () if the flags contradict."""
  try:
    preset = _preset(False)
    return contenders.choose(preset.engines, preset.family)
  except ValueError:
    return ()  # settings_from_flags reports it.
