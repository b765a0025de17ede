"""Tests completions, also if a replica is lost during the answer."""

import asyncio
import unittest

from absl.testing import absltest

from saxml_ext.client import sax
from saxml_ext.client import sax_aio
from saxml_ext.client.testing import fake_cell
from saxml_ext.client.testing import fake_completions
from saxml_ext.common import errors
from saxml_ext.protobuf import completion_pb2

_STOP = completion_pb2.FINISH_REASON_STOP


def _lost(after: int = 1) -> fake_completions.Failure:
  error = errors.Unavailable('Socket closed')
  return fake_completions.Failure(error, after)


def _part(text: str, *ids: int, index: int = 0, **fields):
  tokens = [completion_pb2.Token(token_id=i) for i in ids]
  choice = completion_pb2.Choice(
    index=index, text=text, tokens=tokens, **fields
  )
  return completion_pb2.CompleteResponse(choices=[choice])


def _end(text: str, *ids: int):
  message = _part(text, *ids, finish_reason=_STOP, score=-1.5)
  message.usage.completion_tokens = 4
  return message


class CompletionTest(unittest.IsolatedAsyncioTestCase, absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.cell = fake_cell.FakeCell(self.create_tempdir().full_path)
    self.addCleanup(self.cell.stop)
    sax.SetRoot(self.cell.root)
    self.lm = sax_aio.Model(fake_cell.MODEL).LM()

  async def asyncSetUp(self):
    asyncio.get_running_loop().set_debug(False)

  def _serve(self, *streams) -> fake_completions.FakeCompletions:
    server = self.server = fake_completions.FakeCompletions(*streams)
    self.addCleanup(server.stop)
    self.cell.admin.add_address(fake_cell.MODEL, server.address)
    return server

  async def _texts(self, **settings) -> list[str]:
    return [
      ''.join(c.text for c in message.choices)
      for message in await self._messages(**settings)
    ]

  async def _messages(self, **settings):
    messages = []
    async for message in self.lm.CompleteStream('x', **settings):
      messages.append(message)
      self.server.sent.release()
    return messages

  async def test_complete(self):
    server = self._serve([_end('four words', 1, 2, 3)])
    answer = await self.lm.Complete(
      'hi', n=2, stop=['.'], early_stopping='never', logprobs=0
    )
    self.assertEqual(answer, _end('four words', 1, 2, 3))
    await self.lm.Complete([5, 6])
    self.assertEqual(
      server.requests,
      [
        completion_pb2.CompleteRequest(
          model_key=fake_cell.MODEL,
          text='hi',
          n=2,
          stop=['.'],
          early_stopping=completion_pb2.EARLY_STOPPING_NEVER,
          logprobs=0,
        ),
        completion_pb2.CompleteRequest(
          model_key=fake_cell.MODEL,
          token_ids=completion_pb2.TokenIds(ids=[5, 6]),
        ),
      ],
    )

  async def test_unknown_settings_are_refused(self):
    for settings in ({'nn': 1}, {'n': 'two'}):
      with self.assertRaisesRegex(errors.InvalidArgument, 'vailable: .*top_p'):
        await self.lm.Complete('x', **settings)

  async def test_other_methods(self):
    self._serve([])
    self.assertEqual((await self.lm.Tokenize('ab')).ids, [97, 98])
    self.assertEqual(await self.lm.Detokenize([97, 98]), 'ab')
    self.assertEqual((await self.lm.Describe()).max_prompt, 7)

  async def test_replica_that_fails_before_the_first_message(self):
    server = self._serve([_lost(0)], [_part('a', 1), _end('b', 2)])
    self.assertEqual(await self._texts(), ['a', 'b'])
    self.assertLen(server.requests, 2)

  async def test_another_replica_continues_a_lost_stream(self):
    server = self._serve(
      [_part('one ', 1), _part('two', 2), _lost(2)],
      [_part('one', 1), _part(' ', 2), _part('two th', 3), _end('ree', 4)],
    )
    messages = await self._messages()
    choices = [c for m in messages for c in m.choices]
    self.assertEqual(''.join(c.text for c in choices), 'one two three')
    ids = [t.token_id for c in choices for t in c.tokens]
    self.assertEqual(ids, [1, 2, 3, 4])
    self.assertEqual(choices[-1].score, -1.5)
    self.assertEqual(messages[-1].usage.completion_tokens, 4)
    # Both requests have the same seed, so the same samples can be drawn again.
    first, second = server.requests
    self.assertTrue(first.HasField('fallback_seed'))
    self.assertEqual(first, second)

  async def test_finished_answers_are_not_repeated(self):
    ended = _part('a', 1, finish_reason=_STOP)
    self._serve(
      [ended, _part('b', 2, index=1), _lost(2)],
      [_part('b', 2, index=1), ended, _part('c', index=1, finish_reason=_STOP)],
    )
    parts = [
      (c.index, c.text) for m in await self._messages() for c in m.choices
    ]
    self.assertEqual(parts, [(0, 'a'), (1, 'b'), (1, 'c')])

  async def test_given_seed_is_kept(self):
    server = self._serve([_end('a', 1)])
    await self._texts(seed=7)
    self.assertEqual(server.requests[0].seed, 7)

  async def test_different_answer_of_another_replica_fails(self):
    for other in (
      [_part('other', 1)],
      [_part('one', 9)],
      [_end('on', 1)],
    ):
      with self.subTest(str(other)):
        server = self._serve([_part('one', 1), _lost()], other)
        with self.assertRaisesRegex(
          errors.Unavailable, 'lost in the middle .*Socket.* a different answer'
        ):
          await self._texts()
        self.cell.admin.remove_address(fake_cell.MODEL, server.address)
        server.stop()

  async def test_request_that_kills_replicas_is_given_up(self):
    messages = [_part('one', 1), _part('two', 2), _part('three', 3)]
    server = self._serve(
      *([*messages[:n], _lost()] for n in (1, 2, 3)),
    )
    with self.assertRaisesRegex(errors.Unavailable, '3 replicas were lost'):
      await self._texts()
    self.assertLen(server.requests, 3)

  async def test_other_errors_are_final(self):
    self._serve(
      [_part('one', 1), fake_completions.Failure(errors.Internal('broken'), 1)]
    )
    with self.assertRaisesRegex(errors.Internal, 'broken'):
      await self._texts()

  def test_blocking(self):
    self._serve([_part('a', 1), _lost()], [_part('a', 1), _end('b', 2)])
    lm = sax.Model(fake_cell.MODEL).LM()
    texts = []
    for message in lm.CompleteStream('x', seed=1):
      texts.append(message.choices[0].text)
      self.server.sent.release()
    self.assertEqual(texts, ['a', 'b'])
    self.assertEqual(lm.Detokenize([97]), 'a')
    self.assertEqual(lm.Complete('x').choices[0].text, 'b')


if __name__ == '__main__':
  absltest.main()
