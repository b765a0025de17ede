"""Tests that the float32 engine answers like the reference at its limits."""

import json

from absl.testing import absltest

from converters.convert import conversion
from converters.quantize import models
from harness.benchmarks import gptj
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import runner as runner_lib
from saxml_ext.engine import weights as weights_lib
from saxml_ext.evaluation import dataset
from saxml_ext.evaluation import tokenizer as tokenizer_lib

_MIN_NEW, _MAX_NEW = 30, 128
# The number of articles of each kind. The main job tests the whole set.
_PER_KIND = 2


class AnswersTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    tokenizer = tokenizer_lib.load(gptj.BUNDLE.tokenizer)
    articles = dataset.load_articles(gptj.BUNDLE.dataset)
    self._prompts = dataset.encode_prompts(
      articles, tokenizer, gptj.BUNDLE.max_input_length
    )
    with open(gptj.BUNDLE.reference, encoding='utf-8') as file:
      self._recorded = json.load(file)['tokens']
    lengths = [len(tokenizer.encode(' ' + a.output)) for a in articles]
    rows = range(len(articles))
    kinds = {
      'ended by itself': [i for i in rows if _MIN_NEW < self._length(i) < 50],
      'held at the least': [i for i in rows if lengths[i] < 20],
      'cut at the most': [i for i in rows if self._length(i) == _MAX_NEW],
      'cut prompt': [
        i for i in rows if len(self._prompts[i]) == gptj.BUNDLE.max_input_length
      ],
    }
    self._chosen = {}
    for kind, indices in kinds.items():
      self.assertGreaterEqual(len(indices), _PER_KIND, kind)
      self._chosen |= {index: kind for index in indices[:_PER_KIND]}

  def _length(self, index: int) -> int:
    return len(self._recorded[index])

  def test_answers_match_the_reference(self):
    path = self.create_tempdir().full_path
    conversion.convert(gptj.BUNDLE.model, path, 'float32')
    model = models.open_model(path)
    weights = weights_lib.from_pax(
      {name: model.reader.read(name) for name in model.reader.specs},
      model.config,
    )
    engine = config_lib.EngineConfig(
      eos_id=model.end_ids[0],
      pad_id=model.end_ids[0],
      num_slots=len(self._chosen),
      max_prompt=gptj.BUNDLE.max_input_length,
      min_new_tokens=_MIN_NEW,
      max_new_tokens=_MAX_NEW,
      num_beams=4,
    )
    runner = runner_lib.Runner(weights, model.config, engine)
    waiting = dict(enumerate(self._chosen))
    runner.prefill_and_insert(
      {
        slot: request_lib.Request(self._prompts[index])
        for slot, index in waiting.items()
      }
    )
    while waiting:
      for slot, result in runner.step().items():
        index = waiting.pop(slot)
        answer = result.hypotheses[0].tokens.tolist()
        self.assertEqual(
          [token for token in answer if token != model.end_ids[0]],
          self._recorded[index],
          f'article {index}, {self._chosen[index]}',
        )


if __name__ == '__main__':
  absltest.main()
