"""How near the bundled model in int8 stays to itself in float32."""

import json

from absl.testing import absltest
import jax
import numpy as np

from converters import conversion
from converters import quantization
from converters import quantization_model
from converters import quantization_options
from converters import quantization_record
from converters import quantization_rouge
from harness import bundle
from saxml_ext.common import dataset
from saxml_ext.common import rouge
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import model
from saxml_ext.engine import weights as weights_lib
from saxml_ext.pax import checkpoint

_ARTICLES = 16


def _sequences() -> list[tuple[int, np.ndarray]]:
  """Length of each prompt, and its tokens with the reference's answer."""
  prompts = dataset.encode_prompts(
      dataset.load_articles(bundle.eval_path(), _ARTICLES),
      dataset.load_tokenizer(bundle.tokenizer_path()),
      bundle.MAX_INPUT_LENGTH,
  )
  with open(bundle.reference_path(), encoding='utf-8') as file:
    answers = json.load(file)['tokens'][:_ARTICLES]
  return [
      (len(prompt), np.concatenate([prompt, np.asarray(answer, np.int32)]))
      for prompt, answer in zip(prompts, answers)
  ]


class Int8Test(absltest.TestCase):

  def test_next_tokens_agree_with_float32(self):
    path = self.create_tempdir().full_path
    conversion.convert(bundle.model_dir(), path, 'float32')
    variables = checkpoint.read_variables(path)
    with open(f'{path}/gptj_config.json', encoding='utf-8') as file:
      rotary_dim = json.load(file)['rotary_dim']
    config = config_lib.GPTJConfig.from_pax(variables, rotary_dim)
    sequences = _sequences()
    longest = max(len(tokens) for _, tokens in sequences)
    tokens = np.zeros((len(sequences), longest), np.int32)
    answered = np.zeros(tokens.shape, bool)
    for row, (begin, sequence) in enumerate(sequences):
      tokens[row, : len(sequence)] = sequence
      # What follows the prompt's last token up to the answer's last but one.
      answered[row, begin - 1 : len(sequence) - 1] = True

    @jax.jit
    def next_tokens(weights):
      x, _ = model.prefill(weights, config, tokens, 'float32')
      return model.logits(weights, config, x).argmax(-1)

    exact, quantized = (
        np.asarray(
            next_tokens(
                weights_lib.from_pax(variables, config, quantization=name)
            )
        )[answered]
        for name in (None, 'int8')
    )
    self.assertGreater(len(exact), 30 * _ARTICLES)
    agreement = (exact == quantized).mean()
    print(f'top-1 agreement of int8 with float32: {agreement:.4f}')
    self.assertGreaterEqual(agreement, 0.98)
    # Had nothing been rounded, this test would show nothing.
    self.assertFalse(np.array_equal(exact, quantized))

  def test_quantized_checkpoint_keeps_rouge(self):
    root = self.create_tempdir().full_path
    conversion.convert(bundle.model_dir(), f'{root}/float', 'float32')
    options = quantization_options.Options(smoothing=0.0)
    quantization.quantize(
        f'{root}/float', f'{root}/int8', quantization_record.Record(options)
    )
    quantized = quantization_model.open_model(f'{root}/int8')
    found = quantization_rouge.summarize(
        quantized,
        'int8',
        dataset.load_articles(bundle.eval_path()),
        dataset.load_tokenizer(bundle.tokenizer_path()),
    )
    with open(bundle.reference_path(), encoding='utf-8') as file:
      reference = json.load(file)
    kept = [
        getattr(found.scores, metric) / reference[metric]
        for metric in rouge.METRICS
    ]
    # The record leaves out the end of sequence.
    same = sum(
        [token for token in answer if token != quantized.eos_id] == expected
        for answer, expected in zip(found.tokens, reference['tokens'])
    )
    print(f'ROUGE kept: {kept}, {same} of {len(found.tokens)} answers the same')
    self.assertGreaterEqual(min(kept), 0.999)
    # Plain rounding keeps 77 % of the answers.
    self.assertGreater(same, 0.88 * len(found.tokens))


if __name__ == '__main__':
  absltest.main()
