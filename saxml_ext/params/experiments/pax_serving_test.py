"""Tests of serving params for experiments, and of their decoders."""

from absl.testing import absltest

from saxml_ext.common import errors
from saxml_ext.params import settings as settings_lib
from saxml_ext.params.experiments import pax_serving

# praxis can be imported only after the modules above have prepared it.
# isort: split
from praxis import decoder_hparams


class _Experiment:
  """An experiment with attributes of a model and of serving."""

  NUM_LAYERS = 'as many as it takes'
  FPROP_DTYPE = float
  BATCH_SIZE = 4
  TOP_K = 7


def _decoders(
  experiment: type, own: decoder_hparams.DecoderHParams
) -> tuple[settings_lib.Settings, decoder_hparams.DecoderHParams]:
  settings = settings_lib.Settings.from_params(
    pax_serving.params_of(experiment, own)
  )
  return settings, pax_serving.hparams(settings, own)


class ServingTest(absltest.TestCase):
  def test_attributes_come_before_the_decoder(self):
    own = decoder_hparams.SampleDecoderHParams(
      seqlen=50,
      max_decode_steps=[8, 20],
      eos_id=[3, 4],
      num_samples=3,
      temperature=0.5,
      k=40,
      p=0.9,
    )
    settings, decoder = _decoders(_Experiment, own)
    self.assertEqual(settings.engine.num_slots, 4)
    self.assertEqual(
      (settings.engine.max_prompt, settings.engine.max_new_tokens), (30, 20)
    )
    self.assertEqual(settings.stop_ids, (3, 4))
    self.assertEqual((decoder.k, decoder.num_samples), (7, 3))
    self.assertEqual(decoder.temperature, 0.5)
    self.assertEqual(decoder.eos_id, [3, 4])
    self.assertEqual(decoder.max_decode_steps, 20)
    # No serving attribute sets this field.
    self.assertEqual(decoder.p, 0.9)
    self.assertEqual(own.k, 40)

  def test_beams(self):
    own = decoder_hparams.BeamSearchHParams(
      seqlen=50, beam_size=2, tokens_per_beam=5, eos_id=3, early_exit=True
    )

    class Other(_Experiment):
      LENGTH_NORM_ALPHA = 0.25
      EOS_ID = 9

    settings, decoder = _decoders(Other, own)
    self.assertEqual(settings.engine.search, 'pax')
    self.assertEqual((decoder.beam_size, decoder.tokens_per_beam), (2, 5))
    self.assertEqual(decoder.length_norm_alpha, 0.25)
    self.assertTrue(decoder.early_exit)
    self.assertEqual(decoder.eos_id, [9])

  def test_another_kind_than_the_models_own(self):
    class Other(_Experiment):
      USE_BEAM_SEARCH = True
      BEAM_SIZE = 6

    own = decoder_hparams.GreedyDecoderHParams(seqlen=50, eos_id=3)
    _, decoder = _decoders(Other, own)
    self.assertIsInstance(decoder, decoder_hparams.BeamSearchHParams)
    self.assertEqual(decoder.beam_size, 6)

  def test_unknown_kind(self):
    own = decoder_hparams.FlatBeamSearchHParams(seqlen=50)
    with self.assertRaisesRegex(errors.Unimplemented, 'FlatBeamSearchHParams'):
      pax_serving.params_of(_Experiment, own)


if __name__ == '__main__':
  absltest.main()
