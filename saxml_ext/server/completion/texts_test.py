"""Tests of the texts of completions and of special tokens in prompts."""

import types

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from saxml_ext.params import gptj
from saxml_ext.params import lm_cloud
from saxml_ext.protobuf import completion_pb2
from saxml_ext.server.completion import answers
from saxml_ext.server.testing import fake_runner
from saxml_ext.server.testing import server_fixture
from saxml_ext.server.vocabulary import codec

_KEY = '/sax/test/m'
_PAD = 0


class _Params(gptj.TinyTokenizedFP32):
  INPUT_SEQ_LEN = 64
  BUCKET_KEYS = [64]
  MIN_DECODE_STEPS = 0


class _Sampling(_Params):
  USE_BEAM_SEARCH = False
  NUM_SAMPLES = 2


class TextsTest(parameterized.TestCase):
  def _start(self, params=_Params, steps=4) -> None:
    self.runner = fake_runner.FakeRunner(2, steps)
    self.words = codec.load_tokenizer(lm_cloud.SMALL_VOCABULARY, '')
    self.server = server_fixture.ServerFixture(
      server_fixture.fake_load_fn(params, self.runner, self.words, 1024)
    )
    self.addCleanup(self.server.stop)
    self.addCleanup(self.runner.gate.set)
    self.server.load(_KEY)

  def _ask(self, **fields):
    """Calls Complete; the answer has the ids of the prompt, reversed."""
    request = completion_pb2.CompleteRequest(model_key=_KEY, **fields)
    return self.server.completion.Complete(request, timeout=300)

  def _backwards(self, text: str) -> completion_pb2.TokenIds:
    ids = self.words.encode(text).tolist()
    return completion_pb2.TokenIds(ids=ids[::-1])

  def _admitted(self):
    return [r for batch in self.runner.admissions for r in batch]

  def test_echo_precedes_the_answer(self):
    self._start()
    for stream in (False, True):
      messages = list(self._ask(text='one two', echo=True, stream=stream))
      text = ''.join(c.text for m in messages for c in m.choices)
      ids = self.words.encode('one two').tolist()
      self.assertEqual(text, self.words.decode(ids + ids[::-1]))
    # The echo of ids has the special tokens.
    ids = completion_pb2.TokenIds(ids=[_PAD, *ids])
    (message,) = self._ask(token_ids=ids, echo=True)
    self.assertStartsWith(message.choices[0].text, '<pad> one two')

  @parameterized.product(
    text=(
      'One, caf\u00e9s \u65e5\u672c.',
      ' two  blanks\n',
      '\U0001f600\U0001f600 ',
    ),
    stream=(True, False),
  )
  def test_joined_tokens_are_the_text(self, text, stream):
    self._start(_Sampling, steps=30)
    ids = self._backwards(text)
    messages = list(self._ask(token_ids=ids, stream=stream, stop=['no']))
    choices = [c for m in messages for c in m.choices]
    answer = ''.join(c.text for c in choices)
    self.assertEqual(answer, f' {self.words.decode(ids.ids[::-1])}')
    tokens = [t for c in choices for t in c.tokens]
    self.assertEqual(''.join(t.text for t in tokens), answer)
    raw = b''.join(t.utf8 or t.text.encode() for t in tokens)
    self.assertEqual(raw.decode(), answer)

  def test_joined_tokens_are_the_text_that_ends_within_a_character(self):
    self._start()
    start = self.words.encode('x\U0001f600').tolist()[:-1]
    prompt = completion_pb2.TokenIds(ids=start[::-1])
    (message,) = self._ask(token_ids=prompt)
    (choice,) = message.choices
    self.assertEqual(choice.text, ' x\ufffd\ufffd\ufffd')
    self.assertEqual(''.join(t.text for t in choice.tokens), choice.text)

  def test_answer_to_an_empty_prompt_has_no_first_blank(self):
    words = codec.load_tokenizer(lm_cloud.SMALL_VOCABULARY, '')
    ids = words.encode('the town').tolist()
    for context, text in (([], 'the town'), ([ids[0]], ' the town')):
      choice = answers.Choice(
        0,
        types.SimpleNamespace(
          context=context,
          echo='',
          query=types.SimpleNamespace(min_new_tokens=0),
          stop_ids=(),
          stop_texts=(),
          watched_ids=(),
        ),
        words,
      )
      choice.finish(fake_runner.Hypothesis(np.array(ids), 0.0, 0.0), 0.0)
      whole = choice.take()
      self.assertEqual(whole.text, text)
      self.assertEqual(''.join(t.text for t in whole.tokens), text)

  def test_special_tokens_in_literal_segments_are_text(self):
    self._start()
    parts = [('<pad>the ', False), ('<pad>', True), (' town', False)]
    segments = completion_pb2.Segments(
      segments=[
        completion_pb2.Segment(text=text, literal=literal)
        for text, literal in parts
      ]
    )
    list(self._ask(segments=segments))
    (query,) = self._admitted()
    text = ''.join(text for text, _ in parts)
    self.assertEqual(query.tokens.tolist().count(_PAD), 1)
    self.assertEqual(
      self.words.decode(query.tokens.tolist(), special=True), text
    )
    tokenized = self.server.completion.Tokenize(
      completion_pb2.TokenizeRequest(model_key=_KEY, segments=segments)
    )
    self.assertEqual(list(tokenized.ids), query.tokens.tolist())
    list(self._ask(text=text))
    tokens = self._admitted()[-1].tokens.tolist()
    self.assertEqual(tokens.count(_PAD), 2)

  def test_special_tokens_survive_tokenize_and_detokenize(self):
    self._start()
    text = '<pad>the town<pad>.'
    stub = self.server.completion
    got = stub.Tokenize(
      completion_pb2.TokenizeRequest(model_key=_KEY, text=text)
    )
    self.assertEqual(list(got.ids).count(_PAD), 2)
    self.assertEqual(''.join(got.texts), text)
    back = stub.Detokenize(
      completion_pb2.DetokenizeRequest(model_key=_KEY, ids=got.ids)
    )
    self.assertEqual(back.text, text)


if __name__ == '__main__':
  absltest.main()
