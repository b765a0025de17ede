"""Tests the engine as a system, with a random two-layer model."""

import tempfile

from absl.testing import absltest
import numpy as np

from harness.benchmarks import gptj
from harness.benchmarks import llama
from harness.loadgen import system
from harness.systems.engine import engine_run
from harness.systems.testing import replies
from saxml_ext.common import errors
from saxml_ext.server import jax_setup
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.testing import small_model

_INPUTS = [
  {'input_ids': np.array(ids, np.int32)}
  for ids in (
    [1, 2, 3],
    [4, 5],
    range(1, 15),
    [50],  # Not in the vocabulary.
  )
]
_GREEDY = {
  'USE_BEAM_SEARCH': 'false',
  'NUM_SAMPLES': '1',
  'TOP_K': '1',
  'TEMPERATURE': '0.0',
}


class EngineSystemTest(absltest.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.directory = small_model.write(
      tempfile.mkdtemp(dir=absltest.TEST_TMPDIR.value)
    )
    jax_setup.configure(tempfile.mkdtemp(dir=absltest.TEST_TMPDIR.value))

  def _make(
    self, benchmark=gptj.GPTJ, stream=False, **overrides
  ) -> engine_run.EngineSystem:
    overrides = {'BATCH_SIZE': '1', 'MAX_DECODE_STEPS': '4', **overrides}
    model = engine_run.load(
      entry_lib.Spec(small_model.MODEL_PATH, self.directory, overrides, acls={})
    )
    made = engine_run.EngineSystem(model, _INPUTS, benchmark, stream)
    self.addCleanup(made.close)
    return made

  def _answer(self, made: engine_run.EngineSystem, index: int):
    reply = replies.Reply()
    made.answer(index, reply)
    return reply.answer()

  def test_beams_are_answered_without_a_first_token(self):
    made = self._make(MAX_LIVE_BATCHES='1')
    # A server with this setting would reject so many requests.
    sent = [replies.Reply() for _ in range(6)]
    for number, reply in enumerate(sent):
      made.answer(number % 3, reply)
    answers = [reply.answer() for reply in sent]
    for number, answer in enumerate(answers):
      self.assertIsInstance(answer, system.Answer)
      self.assertEqual(answer.data.dtype, 'int64')
      self.assertEqual(answer.tokens, len(answer.data))
      self.assertBetween(answer.tokens, 2, 4)
      alike = answers[number % 3]
      self.assertEqual(answer.data.tolist(), alike.data.tolist())

  def test_an_answer_ends_before_its_end_id(self):
    made = self._make(**_GREEDY, MIN_DECODE_STEPS='0')
    whole = self._greedy(made, 0)
    self.assertLen(set(whole[:2]), 2)
    made = self._make(
      **_GREEDY, MIN_DECODE_STEPS='0', STOP_TOKEN_IDS=f'[{whole[1]}]'
    )
    self.assertEqual(self._greedy(made, 0), whole[:1])

  def _greedy(self, made: engine_run.EngineSystem, index: int) -> list[int]:
    """Returns the answer; checks that its first token is reported earlier."""
    reply = replies.Reply()
    made.answer(index, reply)
    self.assertEqual(reply.next(), replies.FIRST_TOKEN)
    return reply.answer().data.tolist()

  def test_an_answer_that_is_certain_tells_of_its_first_token(self):
    answers = []
    # With chunks, the prompt is prefilled in several steps.
    for more in ({}, {'PREFILL_CHUNK_LEN': '8'}):
      made = self._make(**_GREEDY, **more)
      answers.append([self._greedy(made, index) for index in (0, 2)])
    self.assertEqual(answers[0], answers[1])

  def test_a_stream_tells_its_first_token(self):
    made = self._make(**_GREEDY, MIN_DECODE_STEPS='0')
    whole = self._greedy(made, 0)
    for ends, expected in (
      (whole[1], whole[:2]),
      (whole[0], whole[:1]),  # Ends in the engine's first call.
    ):
      made = self._make(
        llama.LLAMA,
        stream=True,
        **_GREEDY,
        MIN_DECODE_STEPS='0',
        STOP_TOKEN_IDS=f'[{ends}]',
      )
      reply = replies.Reply()
      made.answer(0, reply)
      self.assertEqual(reply.next(), replies.FIRST_TOKEN)
      self.assertEqual(reply.token, whole[0])
      answer = reply.answer()
      self.assertEqual(answer.data.tolist(), expected)
      self.assertEqual(answer.data.dtype, 'int32')

  def test_a_prompt_that_the_engine_refuses(self):
    made = self._make()
    with self.assertRaisesRegex(errors.InvalidArgument, 'vocabulary has 0 to'):
      made.answer(3, replies.Reply())
    self.assertBetween(self._answer(made, 0).tokens, 2, 4)


if __name__ == '__main__':
  absltest.main()
