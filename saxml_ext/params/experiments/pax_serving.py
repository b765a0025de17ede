"""Converts Pax experiments to serving params, and settings to praxis' decoders.

In Sax's convention, an experiment class has serving attributes such as
BATCH_SIZE and INPUT_SEQ_LEN (`params.template` lists them). An attribute that
the class does not have is taken from its model's decoder. Without
attributes, a model decodes with its own `decoder_tpl`, one request at a time,
with ids as input and output.
"""

from typing import Any, TypeVar

from saxml_ext.common import errors
from saxml_ext.params import settings as settings_lib
from saxml_ext.params import template
from saxml_ext.pax import compat

compat.install_praxis()  # Must precede imports of praxis.

from praxis import decoder_hparams

_HParams = TypeVar('_HParams', bound=decoder_hparams.DecoderHParams)

# These attributes describe the model, which the experiment's task defines here.
_OF_THE_MODEL = (
  'NUM_LAYERS',
  'MODEL_DIMS',
  'HIDDEN_DIMS',
  'NUM_HEADS',
  'DIMS_PER_HEAD',
  'ROTARY_DIM',
  'MAX_POSITION_EMBEDDINGS',
  'LAYER_NORM_EPSILON',
  'MODEL_DTYPE',
  'FPROP_DTYPE',
  'ICI_MESH_SHAPE',
  'DECODE_MESH_TRANSPOSE',
  'EMB_LOOKUP_STYLE',
  'VOCAB_SIZE',
  'NEXT_TOKEN_SAMPLER_TPL',
  'QUANTIZATION',
  'QUANTIZE_SOFTMAX',
  'KV_CACHE_DTYPE',
  'PREFILL_CHUNK_LEN',
  'PREFILL_INTERVAL_STEPS',
)
_TEXT = ('TOKENIZED_INPUT', 'TOKENIZED_OUTPUT', 'VOCABULARY_PATH', 'SPM_MODEL')


def params_of(
  experiment: type, decoder: decoder_hparams.DecoderHParams
) -> type[template.ServableLMParams]:
  """Returns serving params for an experiment class.

  Args:
    experiment: The experiment class; its serving attributes are used.
    decoder: The decoder of its model, for all other attributes.

  Raises:
    errors.Unimplemented: The kind of the decoder is not supported.
  """
  own = {
    name: getattr(experiment, name)
    for name in vars(template.ServableLMParams)
    if name.isupper()
    and name not in _OF_THE_MODEL
    and hasattr(experiment, name)
  }
  fixed = {'BEAM_RULE': 'pax', 'ICI_MESH_SHAPE': [1, 1, 1]}
  return type(
    experiment.__name__,
    (template.ServableLMParams,),
    _defaults(decoder, own) | own | fixed,
  )


def _defaults(
  decoder: decoder_hparams.DecoderHParams, own: dict[str, Any]
) -> dict[str, Any]:
  stops = decoder.eos_id
  stops = [stops] if isinstance(stops, int) else list(stops)
  defaults = {
    'EXTRA_INPUTS': {},
    'PREPEND_SOS': 'SOS_ID' in own,
    'MIN_DECODE_STEPS': decoder.min_decode_steps,
    'EOS_ID': stops[0],
    'STOP_TOKEN_IDS': None if 'EOS_ID' in own else stops,
  }
  steps = decoder.max_decode_steps
  if steps is not None:
    defaults['MAX_DECODE_STEPS'] = steps
    prompt = decoder.seqlen - template.largest(steps)
    if prompt > 0:
      defaults['INPUT_SEQ_LEN'] = prompt
  if not any(name in own for name in _TEXT):
    defaults |= {'TOKENIZED_INPUT': True, 'TOKENIZED_OUTPUT': True}
  return defaults | _search(decoder)


def _search(decoder: decoder_hparams.DecoderHParams) -> dict[str, Any]:
  kind = type(decoder)
  if kind is decoder_hparams.BeamSearchHParams:
    return {
      'USE_BEAM_SEARCH': True,
      'BEAM_SIZE': decoder.beam_size,
      'TOKENS_PER_BEAM': decoder.tokens_per_beam,
      'LENGTH_NORM_ALPHA': decoder.length_norm_alpha,
      'BEAM_SEARCH_EARLY_EXIT': decoder.early_exit,
    }
  if kind is decoder_hparams.SampleDecoderHParams:
    return {
      'NUM_SAMPLES': decoder.num_samples,
      'TEMPERATURE': decoder.temperature,
      'TOP_K': decoder.k,
    }
  if kind is decoder_hparams.GreedyDecoderHParams:
    return {'NUM_SAMPLES': 1, 'TEMPERATURE': 0.0, 'TOP_K': 1}
  raise errors.Unimplemented(
    f'a model with a {kind.__name__} decoder is not supported. Supported:'
    ' BeamSearchHParams, SampleDecoderHParams and GreedyDecoderHParams.'
  )


def hparams(
  settings: settings_lib.Settings,
  base: decoder_hparams.DecoderHParams | None = None,
) -> decoder_hparams.DecoderHParams:
  """Returns the decoder's params for `LanguageModel.decode_with_params`.

  Args:
    settings: The settings of the model, with eos_id or stop_ids. Beams follow
      praxis' rule, whatever BEAM_RULE is.
    base: A decoder whose other fields are kept, if it is of the same kind.

  Raises:
    errors.InvalidArgument: Neither eos_id nor stop_ids are known.
  """
  stops = settings.end_ids
  if not stops:
    raise errors.InvalidArgument(
      'the token that ends an answer is unknown. Set EOS_ID.'
    )
  shared = dict(
    # Prompts are computed at once, so `seqlen` only has to be set.
    fprop_for_prefix=True,
    seqlen=settings.engine.max_prompt + settings.engine.max_new_tokens,
    max_decode_steps=settings.engine.max_new_tokens,
    min_decode_steps=settings.engine.min_new_tokens,
    eos_id=list(stops),
  )
  if not settings.engine.has_samples:
    return _filled(
      decoder_hparams.BeamSearchHParams,
      base,
      beam_size=settings.engine.num_beams,
      tokens_per_beam=settings.engine.tokens_per_beam,
      length_norm_alpha=settings.engine.length_norm_alpha,
      early_exit=settings.engine.early_exit,
      **shared,
    )
  return _filled(
    decoder_hparams.SampleDecoderHParams,
    base,
    num_samples=settings.engine.num_beams,
    temperature=settings.engine.temperature,
    k=settings.engine.max_top_k,
    **shared,
  )


def _filled(
  kind: type[_HParams], base: decoder_hparams.DecoderHParams | None, **fields
) -> _HParams:
  result = base.clone() if type(base) is kind else kind()
  for name, value in fields.items():
    setattr(result, name, value)
  return result
