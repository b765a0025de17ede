"""Tests the openai package with a gateway and a real cell."""

import os
import tempfile

from absl.testing import absltest
import openai

from saxml_ext.http.testing import gateway_fixture
from tests.gateway import real_cell

_PROMPT = 'The mayor spoke of the town'


class OpenaiTest(absltest.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    directory = tempfile.mkdtemp(dir=absltest.get_default_test_tmpdir())
    cls.canary = os.path.join(directory, 'executed')
    model = real_cell.random_model(
      os.path.join(directory, 'checkpoint'), cls.canary
    )
    cls.addClassCleanup(real_cell.RealCell(directory, model).stop)
    cls.gateway = gateway_fixture.GatewayFixture(real_cell.CELL)
    cls.addClassCleanup(cls.gateway.stop)
    cls.client = openai.OpenAI(
      base_url=cls.gateway.address + '/v1', api_key='none', max_retries=0
    )
    cls.addClassCleanup(cls.client.close)

  def complete(self, beams=False, prompt=_PROMPT, **fields):
    extra = {'use_beam_search': beams} | {
      name: fields.pop(name)
      for name in list(fields)
      if name in ('length_penalty', 'top_k', 'ignore_eos')
    }
    return self.client.completions.create(
      model='m', prompt=prompt, extra_body=extra, **fields
    )

  def text(self, stream):
    return ''.join(c.choices[0].text for c in stream if c.choices)

  def test_models(self):
    [model] = self.client.models.list().data
    self.assertEqual(model.id, real_cell.MODEL)
    most = real_cell.MAX_PROMPT + real_cell.MAX_NEW_TOKENS
    self.assertEqual(model.max_model_len, most)

  def test_seed_repeats(self):
    one, two, other = (
      self.complete(seed=seed, max_tokens=12).choices[0].text
      for seed in (5, 5, 6)
    )
    self.assertEqual(one, two)
    self.assertNotEqual(one, other)

  def test_samples_have_any_top_k(self):
    every, zero, many, some, few = (
      self.complete(seed=5, temperature=1.0, top_k=top_k, max_tokens=12)
      for top_k in (-1, 0, 10**6, 100, 2)
    )
    text = every.choices[0].text
    self.assertEqual(zero.choices[0].text, text)
    self.assertEqual(many.choices[0].text, text)
    self.assertNotEqual(few.choices[0].text, text)
    self.assertEqual(some.usage.completion_tokens, 12)

  def test_streams_equal_whole_answers(self):
    for beams in (False, True):
      # Beam search draws nothing, so it rejects a seed.
      settings = {'max_tokens': 12} | ({} if beams else {'seed': 7})
      whole = self.complete(beams, **settings)
      stream = self.complete(beams, **settings, stream=True)
      self.assertEqual(self.text(stream), whole.choices[0].text)
      self.assertLessEqual(whole.usage.completion_tokens, 12)

  def test_samples_and_their_log_probabilities(self):
    got = self.complete(n=2, seed=1, logprobs=2, max_tokens=8)
    self.assertLen(got.choices, 2)
    for choice in got.choices:
      self.assertAlmostEqual(
        sum(choice.logprobs.token_logprobs), choice.cumulative_logprob, 4
      )
      logprobs = choice.logprobs
      self.assertLen(logprobs.text_offset, len(logprobs.tokens))
      for token, likeliest in zip(
        logprobs.tokens, logprobs.top_logprobs, strict=True
      ):
        self.assertIn(token, likeliest)
        self.assertBetween(len(likeliest), 1, 3)

  def test_usage_counts_all_answers(self):
    def ask(**extra):
      return self.client.completions.create(
        model='m',
        prompt=_PROMPT,
        n=2,
        seed=1,
        max_tokens=8,
        extra_body={
          'use_beam_search': False,
          'return_token_ids': True,
          **extra,
        },
      )

    end = ask().choices[0].token_ids[2]
    got = ask(stop_token_ids=[end])
    lengths = [len(choice.token_ids) for choice in got.choices]
    self.assertLess(min(lengths), max(lengths))
    self.assertEqual(got.usage.completion_tokens, sum(lengths))
    [stopped] = [c for c in got.choices if c.finish_reason == 'stop']
    self.assertEqual(stopped.stop_reason, end)

  def test_beams_and_their_scores(self):
    got = self.complete(True, n=3, best_of=4, max_tokens=8)
    scores = [choice.score for choice in got.choices]
    self.assertLen(scores, 3)
    self.assertEqual(scores, sorted(scores, reverse=True))
    narrow = self.complete(True, n=1, max_tokens=8).choices[0]
    self.assertLessEqual(narrow.score, scores[0])
    best = self.complete(True, best_of=4, max_tokens=8).choices[0]
    self.assertEqual(best.text, got.choices[0].text)

  def test_stop(self):
    whole = self.complete(seed=3, max_tokens=24).choices[0].text
    end = whole[len(whole) // 2 :][:2]
    for stream in (False, True):
      got = self.complete(seed=3, max_tokens=24, stop=end, stream=stream)
      text = self.text(got) if stream else got.choices[0].text
      self.assertEqual(text, whole[: whole.index(end)])

  def test_conversation(self):
    messages = [{'role': 'user', 'content': _PROMPT}]
    for _ in range(2):
      got = self.client.chat.completions.create(
        model='m', messages=messages, max_tokens=6
      )
      messages.append(got.choices[0].message.model_dump(exclude_none=True))
      messages.append({'role': 'user', 'content': 'And?'})
    # The plain template repeats the messages, and the checkpoint's template is
    # not read.
    expected = self.complete(True, best_of=4, max_tokens=6).choices[0].text
    self.assertEqual(messages[1]['content'], expected)
    self.assertFalse(os.path.exists(self.canary))

  def test_ids_and_tokens(self):
    ids = self.client.post(
      self.gateway.address + '/tokenize',
      cast_to=object,
      body={'model': 'm', 'prompt': _PROMPT},
    )['tokens']
    by_ids = self.complete(True, prompt=ids, max_tokens=6)
    by_text = self.complete(True, max_tokens=6)
    self.assertEqual(by_ids.choices[0].text, by_text.choices[0].text)
    self.assertEqual(by_text.usage.prompt_tokens, len(ids))

  def test_unsupported_parameters_are_refused(self):
    for fields, expected in (
      ({'max_tokens': 10_000}, str(real_cell.MAX_NEW_TOKENS)),
      ({'prompt': 'word ' * 500}, str(real_cell.MAX_PROMPT)),
      ({'n': 100}, '100'),
      ({'prompt': [5000]}, '5000'),
      ({'beams': True, 'best_of': 50}, '50'),
    ):
      with self.assertRaisesRegex(openai.BadRequestError, expected):
        self.complete(**fields)


if __name__ == '__main__':
  absltest.main()
