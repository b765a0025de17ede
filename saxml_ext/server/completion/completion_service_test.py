"""Tests of completions over gRPC, with a fake engine."""

import time

from absl.testing import absltest
from absl.testing import parameterized
import grpc

from saxml_ext.params import gptj
from saxml_ext.params import lm_cloud
from saxml_ext.protobuf import common_pb2
from saxml_ext.protobuf import completion_pb2
from saxml_ext.server.testing import fake_runner
from saxml_ext.server.testing import server_fixture
from saxml_ext.server.vocabulary import codec

_KEY = '/sax/test/m'
_TIMEOUT = 300
_VOCAB_SIZE = 1024
_Code = grpc.StatusCode
_STOP = completion_pb2.FINISH_REASON_STOP
_LENGTH = completion_pb2.FINISH_REASON_LENGTH


class _Params(gptj.TinyTokenizedFP32):
  INPUT_SEQ_LEN = 64
  BUCKET_KEYS = [64]
  MAX_LIVE_BATCHES = 3
  MIN_DECODE_STEPS = 0
  TOP_K = 40


class _Sampling(_Params):
  USE_BEAM_SEARCH = False
  NUM_SAMPLES = 2


class CompletionServiceTest(parameterized.TestCase):
  def _start(
    self, params=_Params, steps=4, rows=1, words=True, num_slots=2, **load
  ) -> None:
    self.runner = fake_runner.FakeRunner(num_slots, steps, rows)
    self.words = codec.load_tokenizer(lm_cloud.SMALL_VOCABULARY, '')
    self.server = server_fixture.ServerFixture(
      server_fixture.fake_load_fn(
        params, self.runner, self.words if words else None, _VOCAB_SIZE
      )
    )
    self.addCleanup(self.server.stop)
    self.addCleanup(self.runner.gate.set)
    self.server.load(_KEY, **load)

  def _ask(self, request=None, **fields):
    """Calls Complete; the answer is the text of token_ids, reversed."""
    request = request or completion_pb2.CompleteRequest(**fields)
    request.model_key = _KEY
    return self.server.completion.Complete(request, timeout=_TIMEOUT)

  def _backwards(self, text: str) -> completion_pb2.TokenIds:
    ids = self.words.encode(text).tolist()
    return completion_pb2.TokenIds(ids=ids[::-1])

  def _until(self, condition) -> None:
    end = time.monotonic() + _TIMEOUT
    while not condition():
      self.assertLess(time.monotonic(), end, 'it never happened')
      time.sleep(0.005)

  def _assert_refused(self, call, *words, code=_Code.INVALID_ARGUMENT):
    with self.assertRaises(grpc.RpcError) as caught:
      list(call)
    self.assertIs(caught.exception.code(), code, caught.exception.details())
    for word in words:
      self.assertIn(word, caught.exception.details())

  def _admitted(self):
    return [r for batch in self.runner.admissions for r in batch]

  def test_unstreamed_response_is_one_message(self):
    self._start()
    text = 'The mayor spoke of caf\u00e9s.'
    (message,) = self._ask(token_ids=self._backwards(text))
    (choice,) = message.choices
    # The text continues the prompt.
    self.assertEqual(choice.text, f' {text}')
    self.assertEqual(''.join(t.text for t in choice.tokens), choice.text)
    self.assertEqual(choice.finish_reason, _LENGTH)
    self.assertEqual(choice.score, -1.0)
    ids = self.words.encode(text).tolist()
    self.assertEqual([t.token_id for t in choice.tokens], ids)
    raw = b''.join(t.utf8 or t.text.encode() for t in choice.tokens)
    self.assertEqual(raw.decode(), choice.text)
    self.assertEqual(
      message.usage,
      completion_pb2.Usage(prompt_tokens=len(ids), completion_tokens=len(ids)),
    )

  def test_stream_has_the_same_text_in_parts(self):
    self._start(steps=30)
    self.runner.step_secs = 0.005
    text = 'Two words \u65e5\u672c and more.'
    messages = list(self._ask(token_ids=self._backwards(text), stream=True))
    self.assertGreater(len(messages), 3)
    choices = [c for m in messages for c in m.choices]
    self.assertEqual(''.join(c.text for c in choices), f' {text}')
    self.assertEqual({c.index for c in choices}, {0})
    self.assertEqual(choices[-1].finish_reason, _LENGTH)
    for choice in choices[:-1]:
      self.assertNotIn('\ufffd', choice.text)
      self.assertFalse(choice.finish_reason)
    ids = [t.token_id for c in choices for t in c.tokens]
    self.assertEqual(ids, self.words.encode(text).tolist())
    for message in messages[:-1]:
      self.assertFalse(message.HasField('usage'))
    self.assertEqual(messages[-1].usage.completion_tokens, len(ids))

  def test_best_answers_come_first(self):
    self._start()
    (message,) = self._ask(token_ids=self._backwards('one two'), n=2)
    self.assertEqual([c.index for c in message.choices], [0, 1])
    self.assertEqual([c.score for c in message.choices], [-1.0, -2.0])

  def test_samples_come_best_first_unless_streamed(self):
    self._start(_Sampling, rows=2, steps=2)
    ids = self._backwards('one two')
    (message,) = self._ask(token_ids=ids, n=2)
    self.assertEqual([c.score for c in message.choices], [-1.0, -2.0])
    self.assertEqual([c.index for c in message.choices], [0, 1])
    scores = {}
    for message in self._ask(token_ids=ids, n=2, stream=True):
      for choice in message.choices:
        if choice.finish_reason:
          scores[choice.index] = choice.score
    self.assertEqual(scores, {0: -2.0, 1: -1.0})

  @parameterized.parameters(True, False)
  def test_stop_text_ends_a_sample_and_frees_its_slot(self, stream):
    self._start(_Sampling, steps=10**6)
    self.runner.step_secs = 0.002
    text = 'The mayor spoke. Then he left the room.'
    choices = [
      c
      for m in self._ask(
        token_ids=self._backwards(text), stop=['left', 'Then'], stream=stream
      )
      for c in m.choices
    ]
    self.assertEqual(''.join(c.text for c in choices), ' The mayor spoke. ')
    self.assertEqual(choices[-1].finish_reason, _STOP)
    self.assertEqual(choices[-1].stop_text, 'Then')
    decoded = self.words.decode([t.token_id for c in choices for t in c.tokens])
    self.assertStartsWith('The mayor spoke. Then', decoded)
    self._until(lambda: self.runner.released == [0])

  def test_stop_text_truncates_finished_beams(self):
    self._start(steps=30)
    text = 'The mayor spoke. Then he left.'
    for stream in (False, True):
      choices = [
        c
        for m in self._ask(
          token_ids=self._backwards(text), stop=['Then'], stream=stream
        )
        for c in m.choices
      ]
      self.assertEqual(''.join(c.text for c in choices), ' The mayor spoke. ')
      self.assertEqual(choices[-1].stop_text, 'Then')
      self.assertEqual(choices[-1].score, -1.0)
    self.assertEmpty(self.runner.released)

  def test_stop_ids_above_the_engine_limit_end_a_sample(self):
    self._start(_Sampling, steps=10**6)
    # The model's own stop id fills the engine's list of stop ids.
    prompt = completion_pb2.TokenIds(ids=[600, 500, 400, 300])
    (message,) = self._ask(token_ids=prompt, stop_token_ids=[500, 700])
    (choice,) = message.choices
    self.assertEqual([t.token_id for t in choice.tokens], [300, 400, 500])
    self.assertEqual(choice.finish_reason, _STOP)
    self.assertEqual(choice.stop_token_id, 500)
    self.assertEqual(message.usage.completion_tokens, 3)
    self._until(lambda: self.runner.released == [0])

  def test_stop_ids_above_the_engine_limit_apply_after_min_tokens(self):
    self._start(_Sampling, steps=10**6)
    prompt = completion_pb2.TokenIds(ids=[700, 600, 500, 400, 300])
    (message,) = self._ask(
      token_ids=prompt, stop_token_ids=[400, 600], min_tokens=3
    )
    (choice,) = message.choices
    self.assertEqual([t.token_id for t in choice.tokens], [300, 400, 500, 600])
    self.assertEqual(choice.stop_token_id, 600)

  def test_model_stop_id_is_a_token_without_text(self):
    self._start()
    ids = completion_pb2.TokenIds(ids=[server_fixture.EOS_ID, 400, 300])
    (message,) = self._ask(token_ids=ids)
    (choice,) = message.choices
    self.assertEqual(choice.stop_token_id, server_fixture.EOS_ID)
    self.assertEqual(choice.finish_reason, _STOP)
    self.assertEqual(
      choice.text, ''.join(self.words.piece(i).decode() for i in (300, 400))
    )
    self.assertLen(choice.tokens, 3)
    self.assertEqual(choice.tokens[2].text, '')
    (message,) = self._ask(token_ids=ids, ignore_eos=True)
    self.assertEqual(message.choices[0].finish_reason, _LENGTH)
    self.assertEqual([r.stop_ids for r in self._admitted()], [(99,), ()])

  def test_settings_reach_the_engine(self):
    self._start(_Sampling)
    list(
      self._ask(
        token_ids=completion_pb2.TokenIds(ids=[3]),
        max_tokens=7,
        min_tokens=2,
        temperature=0.25,
        top_k=5,
        top_p=0.5,
        seed=12,
        n=2,
      )
    )
    (query,) = self._admitted()
    self.assertEqual(query.max_new_tokens, 7)
    self.assertEqual(query.min_new_tokens, 2)
    self.assertEqual(query.temperature, 0.25)
    self.assertEqual(query.top_k, 5)
    self.assertEqual(query.top_p, 0.5)
    self.assertEqual(query.seed, 12)
    self.assertEqual(query.num_samples, 2)
    self.assertIsNone(query.num_beams)
    self.assertFalse(query.stream)

  def test_neutral_settings_are_accepted_with_beams(self):
    self._start()
    list(self._ask(text='a', temperature=0, top_k=0, top_p=1, fallback_seed=7))
    self.assertIsNone(self._admitted()[0].seed)

  def test_fallback_seed_applies_to_samples_without_a_seed(self):
    self._start(_Sampling)
    list(self._ask(text='a', fallback_seed=7))
    list(self._ask(text='a', fallback_seed=7, seed=8))
    self.assertEqual([r.seed for r in self._admitted()], [7, 8])

  def test_beam_settings_reach_the_engine(self):
    self._start()
    list(
      self._ask(
        token_ids=completion_pb2.TokenIds(ids=[3]),
        num_beams=3,
        length_penalty=0.5,
        early_stopping=completion_pb2.EARLY_STOPPING_NEVER,
        use_beam_search=True,
        logprobs=0,
        stream=True,
      )
    )
    (query,) = self._admitted()
    self.assertEqual(query.num_beams, 3)
    self.assertEqual(query.length_penalty, 0.5)
    self.assertEqual(query.early_stopping, 'never')
    self.assertEqual(query.logprobs, 0)
    self.assertTrue(query.beam_search)
    self.assertTrue(query.stream)

  @parameterized.parameters(
    (dict(), 'no prompt'),
    (dict(text=''), 'has 0 tokens. Send at least 1.'),
    (dict(text='far too long ' * 60), '1 to 64'),
    (dict(text='x' * 100_000), '100000 characters', 'the limit of 69632'),
    (dict(text='a', max_tokens=0), 'max_tokens is 0', '128'),
    (dict(text='a', max_tokens=129), 'max_tokens is 129', '128'),
    (dict(text='a', min_tokens=5, max_tokens=4), 'min_tokens is 5'),
    (dict(text='a', n=0), 'n is 0', '4'),
    (dict(text='a', n=5), 'n is 5', '4'),
    (dict(text='a', n=3, num_beams=2), 'n is 3', 'num_beams'),
    (dict(text='a', stop=['']), '0 characters'),
    (dict(text='a', stop=['x' * 257]), '257 characters'),
    (dict(text='a', stop=['x'] * 17), '17 stop texts'),
    (dict(text='a', stop_token_ids=[1024]), 'stop_token_ids contains 1024'),
    (dict(text='a', stop_token_ids=[-1]), 'stop_token_ids contains -1'),
    (dict(text='a', stop_token_ids=range(65)), '65 stop_token_ids'),
    (dict(text='a', temperature=0.5), 'temperature is 0.5', 'beam search'),
    (dict(text='a', temperature=-1), 'temperature is -1'),
    (dict(text='a', top_k=5), 'top_k is 5', 'MIXED_SEARCH=true'),
    (dict(text='a', top_p=0.5), 'top_p is 0.5', 'use_beam_search to false'),
    (dict(text='a', seed=0), 'seed is 0', 'Leave it out'),
    (dict(text='a', priority=101), 'priority is 101', '100'),
  )
  def test_invalid_requests_are_refused(self, fields, *words):
    self._start()
    self._assert_refused(self._ask(**fields), *words)
    self.assertEmpty(self.runner.admissions)

  def test_unsupported_search_is_refused(self):
    for params, beams, only in (
      (_Params, False, 'only beam search'),
      (_Sampling, True, 'only samples'),
    ):
      self._start(params)
      self._assert_refused(
        self._ask(text='a', use_beam_search=beams),
        f'use_beam_search is {beams}',
        only,
        'publish the model with MIXED_SEARCH=true',
      )
      self.assertEmpty(self.runner.admissions)

  def test_model_without_a_tokenizer_takes_only_ids(self):
    self._start(words=False)
    self._assert_refused(self._ask(text='a'), 'no tokenizer')
    self._assert_refused(
      self._ask(token_ids=completion_pb2.TokenIds(ids=[1]), stop=['a']),
      'no tokenizer',
      'stop_token_ids',
    )
    (message,) = self._ask(token_ids=completion_pb2.TokenIds(ids=[5, 4]))
    self.assertEqual(message.choices[0].text, '4,5')
    stub = self.server.completion
    self.assertFalse(
      stub.Describe(
        completion_pb2.DescribeRequest(model_key=_KEY)
      ).has_tokenizer
    )

  def test_tokenize_detokenize_and_describe_answer(self):
    self._start()
    stub = self.server.completion
    got = stub.Tokenize(
      completion_pb2.TokenizeRequest(model_key=_KEY, text='The caf\u00e9')
    )
    self.assertEqual(list(got.ids), self.words.encode('The caf\u00e9').tolist())
    self.assertLen(got.texts, len(got.ids))
    self.assertEqual(got.max_model_len, 64 + 128)
    back = stub.Detokenize(
      completion_pb2.DetokenizeRequest(model_key=_KEY, ids=got.ids)
    )
    self.assertEqual(back.text, 'The caf\u00e9')
    for ids, message in (
      ([1024], 'ids contains 1024'),
      ([1] * 65537, '65537 ids'),
    ):
      with self.assertRaisesRegex(grpc.RpcError, message):
        stub.Detokenize(
          completion_pb2.DetokenizeRequest(model_key=_KEY, ids=ids)
        )
    description = stub.Describe(completion_pb2.DescribeRequest(model_key=_KEY))
    self.assertEqual(
      (
        description.max_prompt,
        description.max_new_tokens,
        description.vocab_size,
      ),
      (64, 128, 1024),
    )
    self.assertEqual((description.max_beams, description.max_samples), (4, 0))
    self.assertEqual(description.checkpoint_path, '/ckpt')
    self.assertTrue(description.has_tokenizer)

  def test_acls_of_generate_and_streams_apply(self):
    self._start(
      acls=common_pb2.AccessControlLists(
        items={'lm.generate_stream': 'acl/few'}
      )
    )
    ids = completion_pb2.TokenIds(ids=[1])
    self.assertLen(list(self._ask(token_ids=ids)), 1)
    self._assert_refused(
      self._ask(token_ids=ids, stream=True),
      'lm.generate_stream',
      code=_Code.PERMISSION_DENIED,
    )

  def test_disconnected_client_frees_its_slot(self):
    self._start(steps=10**9, num_slots=1)
    call = self._ask(token_ids=completion_pb2.TokenIds(ids=[3, 4]), stream=True)
    next(call)
    call.cancel()
    self._until(lambda: self.runner.released == [0])

  def test_missing_models_are_not_found(self):
    self._start()
    call = self.server.completion.Complete(
      completion_pb2.CompleteRequest(model_key='/sax/test/x')
    )
    self._assert_refused(call, '/sax/test/x', code=_Code.NOT_FOUND)


if __name__ == '__main__':
  absltest.main()
