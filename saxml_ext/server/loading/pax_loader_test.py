"""Tests of pax_loader: several kinds of experiments, and refused ones."""

import functools
import sys
import tempfile

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from saxml_ext.common import errors
from saxml_ext.engine import request as request_lib
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.loading import pax_loader
from saxml_ext.server.loading import servable
from saxml_ext.server.testing import tiny_experiments

_MODULE = 'saxml_ext.server.testing.tiny_experiments.'
_NAMES = tuple(
  _MODULE + name
  for name in ('Plain', 'Beams', 'Samples', 'Unfinished', 'save', 'Missing')
) + ('no_such_package.module.Class',)
_TIMEOUT = 600
_PROMPT = np.array([5, 6, 7], np.int32)


@functools.cache
def _checkpoint() -> str:
  path = tempfile.mkdtemp(dir=absltest.TEST_TMPDIR.value)
  tiny_experiments.save(path, ocdbt=True)
  return path


class PaxLoaderTest(parameterized.TestCase):
  def load(self, name: str, path: str = '', **overrides) -> servable.Servable:
    load = pax_loader.load_fn(_NAMES)
    spec = entry_lib.Spec(name, path or _checkpoint(), overrides, {})
    model = load(spec, self.fail)
    self.addCleanup(model.close, False)
    return model

  def generate(self, model, *prompts, **choices) -> list:
    requests = [
      request_lib.Request(
        np.array(prompt, np.int32),
        stop_ids=model.settings.stop_ids,
        **choices,
      )
      for prompt in prompts
    ]
    futures = [model.scheduler.generate(request) for request in requests]
    return [
      [h.tokens.tolist() for h in future.result(_TIMEOUT).hypotheses]
      for future in futures
    ]

  def test_decoder_of_the_experiment_sets_the_defaults(self):
    model = self.load(_MODULE + 'Plain')
    settings = model.settings
    self.assertEqual(settings.engine.max_prompt, 12)
    self.assertEqual(settings.engine.max_new_tokens, 8)
    self.assertEqual(settings.engine.num_slots, 1)
    self.assertTrue(settings.tokenized_input and settings.tokenized_output)
    [[tokens]] = self.generate(model, _PROMPT)
    # The search is greedy: by praxis' scores, each token is the likeliest after
    # the previous ones.
    sequence = np.concatenate([_PROMPT, tokens]).astype(np.int32)
    for end in range(len(_PROMPT), len(_PROMPT) + 3):
      scores = [
        model.scheduler.score(sequence[:end], np.array([i], np.int32)).result(
          _TIMEOUT
        )
        for i in range(tiny_experiments.VOCAB_SIZE)
      ]
      self.assertEqual(np.argmax(scores), sequence[end])

  def test_requests_control_samples(self):
    model = self.load(_MODULE + 'Samples', BATCH_SIZE='3')
    prompts = [[5, 6, 7], [9], [30, 31, 32, 33]]
    first = self.generate(model, *prompts, seed=1)
    self.assertEqual(first, self.generate(model, *prompts, seed=1))
    self.assertNotEqual(first, self.generate(model, *prompts, seed=2))
    self.assertNotEqual(first[0][0], first[0][1])
    [greedy] = self.generate(model, [5, 6, 7], temperature=0.0)
    self.assertEqual(greedy[0], greedy[1])
    self.assertEqual(self.generate(model, [5, 6, 7], top_k=1), [greedy])
    [short] = self.generate(model, [5, 6, 7], max_new_tokens=3)
    self.assertTrue(all(len(tokens) <= 3 for tokens in short))

  def test_unsupported_praxis_settings_are_refused(self):
    model = self.load(_MODULE + 'Beams')
    for choices, message in (
      (dict(max_new_tokens=3), 'only searches beams of 8 tokens'),
      (
        dict(max_new_tokens=9),
        'max_new_tokens is 9, not 1 to 8',
      ),
    ):
      with self.assertRaisesRegex(errors.InvalidArgument, message):
        self.generate(model, _PROMPT, **choices)
    request = request_lib.Request(_PROMPT, stop_ids=(7,))
    with self.assertRaisesRegex(
      errors.InvalidArgument, 'differ from the stop ids with'
    ):
      model.scheduler.generate(request)
    with self.assertRaisesRegex(errors.InvalidArgument, '13 tokens, not 1 to'):
      self.generate(model, [5] * 13)
    with self.assertRaisesRegex(errors.Unimplemented, 'MIN_DECODE_STEPS=2'):
      self.load(_MODULE + 'Samples', MIN_DECODE_STEPS='2')

  @parameterized.parameters(
    (_MODULE + 'Unfinished', 'Unfinished is abstract, because it lacks task'),
    (_MODULE + 'save', 'must be a subclass of paxml.base_experiment'),
    (_MODULE + 'Missing', "has no attribute 'Missing'"),
    (_NAMES[-1], "No module named 'no_such_package'"),
  )
  def test_missing_experiment_is_refused(self, name, message):
    with self.assertRaisesRegex(errors.InvalidArgument, message):
      self.load(name)

  def test_missing_checkpoint_is_refused(self):
    for path, message in (
      ('/no/such/dir', 'not a directory that this server can read'),
      ('gs://bucket/pax', 'not from buckets. Copy it'),
      (self.create_tempdir().full_path, 'has no checkpoint_<step>'),
    ):
      with self.assertRaisesRegex(errors.InvalidArgument, message):
        self.load(_MODULE + 'Plain', path)

  def test_other_names_are_never_imported(self):
    module = 'antigravity'
    self.assertNotIn(module, sys.modules)
    with self.assertRaisesRegex(errors.InvalidArgument, 'no serving params'):
      self.load(f'{module}.geohash')
    self.assertNotIn(module, sys.modules)


if __name__ == '__main__':
  absltest.main()
