"""Compares the bundled model in int8 with itself in float32."""

import json
import tempfile

from absl.testing import absltest
import jax
import numpy as np

from bundled.summaries.baselines import variants
from converters.convert import conversion
from converters.quantize import models
from converters.quantize import provenance
from converters.quantize import quantization
from harness.benchmarks import gptj
from harness.systems.reference import causal_lm
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import model
from saxml_ext.engine import request
from saxml_ext.engine import runner
from saxml_ext.engine import weights as weights_lib
from saxml_ext.evaluation import dataset
from saxml_ext.evaluation import rouge
from saxml_ext.evaluation import tokenizer as tokenizer_lib
from saxml_ext.pax import description
from saxml_ext.pax.testing import checkpoints

# The number of articles with forced answers. They have more than 600 positions.
_FORCED = 16
# The number of articles with searched answers. In a model with uneven channels,
# plain rounding keeps 45 % of the answers, and smoothing keeps 77 %. With this
# number, the limit of 62 % is more than two standard deviations away from both.
_SEARCHED = 64


def _sequences() -> list[tuple[int, np.ndarray]]:
  """Returns pairs: the length of a prompt, and its tokens with the answer's."""
  return [
    (len(prompt), np.concatenate([prompt, np.asarray(answer, np.int32)]))
    for prompt, answer in zip(_prompts(_FORCED), _answers(_FORCED))
  ]


def _prompts(count: int) -> list[np.ndarray]:
  return dataset.encode_prompts(
    dataset.load_articles(gptj.BUNDLE.dataset, count),
    tokenizer_lib.load(gptj.BUNDLE.tokenizer),
    gptj.BUNDLE.max_input_length,
  )


def _answers(count: int) -> list[list[int]]:
  """Returns the reference's answers, without the end of sequence."""
  with open(gptj.BUNDLE.reference, encoding='utf-8') as file:
    return json.load(file)['tokens'][:count]


def _search(
  quantized: models.Model, prompts: list[np.ndarray]
) -> list[list[int]]:
  """Answers with the reference's settings, with as few programs as possible.

  Compiling a program takes as long as a hundred answers.
  """
  longest = max(map(len, prompts))
  engine = runner.Runner(
    weights_lib.from_pax(
      {name: quantized.reader.read(name) for name in quantized.reader.specs},
      quantized.config,
      quantization='int8',
      quantize_head=False,  # The checkpoint's head is not quantized.
    ),
    quantized.config,
    config_lib.EngineConfig(
      eos_id=quantized.end_ids[0],
      pad_id=quantized.end_ids[0],
      num_slots=32,
      decode_widths=(32,),
      max_prompt=longest,
      prompt_buckets=(longest,),
      min_new_tokens=30,
      max_new_tokens=128,
      num_beams=4,
    ),
  )
  waiting = list(enumerate(prompts))
  holder: dict[int, int] = {}
  answers: list[list[int]] = [[] for _ in prompts]
  while waiting or holder:
    for slot in set(range(engine.num_slots)) - holder.keys():
      if waiting:
        holder[slot], prompt = waiting.pop()
        engine.prefill_and_insert({slot: request.Request(prompt)})
    for slot, result in engine.step().items():
      tokens = result.hypotheses[0].tokens.tolist()
      answers[holder.pop(slot)] = [
        t for t in tokens if t != quantized.end_ids[0]
      ]
  return answers


class Int8Test(absltest.TestCase):
  root: str

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    directory = tempfile.TemporaryDirectory()
    cls.addClassCleanup(directory.cleanup)
    cls.root = directory.name
    conversion.convert(gptj.BUNDLE.model, f'{cls.root}/float', 'float32')

  def test_next_tokens_agree_with_float32(self):
    path = f'{self.root}/float'
    variables = checkpoints.read_variables(path)
    config = config_lib.ModelConfig.from_pax(
      variables, description.read(path).rotary_dim
    )
    sequences = _sequences()
    longest = max(len(tokens) for _, tokens in sequences)
    tokens = np.zeros((len(sequences), longest), np.int32)
    answered = np.zeros(tokens.shape, bool)
    for row, (begin, sequence) in enumerate(sequences):
      tokens[row, : len(sequence)] = sequence
      # These positions go from the prompt's last token to the second to last
      # token of the answer.
      answered[row, begin - 1 : len(sequence) - 1] = True

    @jax.jit
    def next_tokens(weights):
      x, _ = model.prefill(weights, config, tokens, 'float32')
      return model.logits(weights, config, x).argmax(-1)

    exact, quantized = (
      np.asarray(
        next_tokens(weights_lib.from_pax(variables, config, quantization=name))
      )[answered]
      for name in (None, 'int8')
    )
    self.assertGreater(len(exact), 30 * _FORCED)
    agreement = (exact == quantized).mean()
    print(f'top-1 agreement of int8 with float32: {agreement:.4f}')
    self.assertGreaterEqual(agreement, 0.98)
    # Without any rounding, this test would show nothing.
    self.assertFalse(np.array_equal(exact, quantized))

  def test_quantized_checkpoint_keeps_rouge(self):
    # The channels are as uneven as those of large models. In float, no answer
    # depends on this. Smoothing is made for such channels.
    spread = variants.spread(causal_lm.load(gptj.BUNDLE.model))
    spread.save_pretrained(f'{self.root}/spread')
    conversion.convert(f'{self.root}/spread', f'{self.root}/uneven', 'float32')
    options = provenance.Options(smoothing=0.0)
    quantization.quantize(
      f'{self.root}/uneven', f'{self.root}/int8', provenance.Record(options)
    )
    quantized = _search(
      models.open_model(f'{self.root}/int8'), _prompts(_SEARCHED)
    )
    expected = _answers(_SEARCHED)
    articles = dataset.load_articles(gptj.BUNDLE.dataset, _SEARCHED)
    highlights = [article.output for article in articles]
    tokenizer = tokenizer_lib.load(gptj.BUNDLE.tokenizer)
    ours, reference = (
      rouge.score_tokens(dict(enumerate(answers)), highlights, tokenizer)
      for answers in (quantized, expected)
    )
    kept = [
      getattr(ours, metric) / getattr(reference, metric)
      for metric in rouge.METRICS
    ]
    same = sum(a == b for a, b in zip(quantized, expected, strict=True))
    print(f'ROUGE kept: {kept}, {same} of {len(quantized)} answers the same')
    self.assertGreaterEqual(min(kept), 0.999)
    self.assertGreater(same, 0.62 * len(quantized))


if __name__ == '__main__':
  absltest.main()
