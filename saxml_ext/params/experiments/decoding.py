"""praxis' decoders from a model's settings."""

from typing import TypeVar

from saxml_ext.common import errors
from saxml_ext.params import settings as settings_lib
from saxml_ext.pax import compat

compat.install_praxis()  # Before the first import of praxis.

from praxis import decoder_hparams

_HParams = TypeVar('_HParams', bound=decoder_hparams.DecoderHParams)


def hparams(
  settings: settings_lib.Settings,
  base: decoder_hparams.DecoderHParams | None = None,
) -> decoder_hparams.DecoderHParams:
  """Returns what `LanguageModel.decode_with_params` takes.

  Args:
    settings: of the model, its eos_id or stop_ids known. Beams follow praxis'
      rule, whatever BEAM_RULE says.
    base: a decoder of which fields that no serving attribute names are kept, if
      it is of the same kind.

  Raises:
    errors.InvalidArgument: neither eos_id nor stop_ids are known.
  """
  stops = settings.stop_ids or (settings.engine.eos_id,)
  if None in stops:
    raise errors.InvalidArgument(
      'nothing says which token ends an answer: set EOS_ID'
    )
  shared = dict(
    # Prompts are computed in one go, so that `seqlen` only has to be set.
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
  kind: type[_HParams],
  base: decoder_hparams.DecoderHParams | None,
  **fields,
) -> _HParams:
  result = base.clone() if type(base) is kind else kind()
  for name, value in fields.items():
    setattr(result, name, value)
  return result
