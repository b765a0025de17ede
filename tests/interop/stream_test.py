"""Tests streams from a real server to real clients, with a fake engine."""

import asyncio
import contextlib
import io
import threading

from absl.testing import absltest

from saxml_ext.client import sax
from saxml_ext.client import sax_aio
from saxml_ext.client import saxutil
from saxml_ext.client.testing import fake_cell
from saxml_ext.params import gptj
from saxml_ext.params import lm_cloud
from saxml_ext.server.testing import fake_runner
from saxml_ext.server.testing import server_fixture
from saxml_ext.server.vocabulary import codec

_MODEL = fake_cell.MODEL
_TEXT = 'Three replicas, and one of them is lost: caf\u00e9 \u65e5\u672c.'
_CLEAR = '\x1b[H\x1b[2J\x1b[3J'


class _Params(gptj.TinyTokenizedFP32):
  ENABLE_GENERATE_STREAM = True
  INPUT_SEQ_LEN = 64
  BUCKET_KEYS = [64]


class StreamTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.cell = fake_cell.FakeCell(self.create_tempdir().full_path)
    self.addCleanup(self.cell.stop)
    sax.SetRoot(self.cell.root)
    self.words = codec.load_tokenizer(lm_cloud.SMALL_VOCABULARY, '')

  def _serve(self, steps: int = 3):
    """Starts a replica that answers with the prompt's ids in reverse order."""
    runner = fake_runner.FakeRunner(num_slots=2, steps=steps)
    server = server_fixture.ServerFixture(
      server_fixture.fake_load_fn(_Params, runner, self.words, 1024)
    )
    self.addCleanup(server.stop)
    server.load(_MODEL)
    self.cell.admin.add_address(_MODEL, server.address)
    return server, runner

  def _ids(self) -> list[int]:
    return self.words.encode(_TEXT).tolist()[::-1]

  def _saxutil(self, *args: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
      code = saxutil.run(['lm.generate', '-stream', *args])
    self.assertEqual(code, 0, out.getvalue())
    return out.getvalue()

  def test_saxutil_shows_the_text_while_it_grows(self):
    server, runner = self._serve()
    runner.step_secs = 0.1
    out = self._saxutil(f'-proxy={server.address}', _MODEL, '7,12,9')
    *_, last = screens = out.split(_CLEAR)[1:]
    # Each screen shows more than the previous one, and the last one shows all
    # hypotheses.
    for screen in screens[:-1]:
      self.assertTrue('9,12,7'.startswith(screen.rstrip('\n')), out)
    self.assertEqual(last, '9,12,7\n\n7\n\nScores: -1, -2\n')

  def test_both_clients_read_the_same_text(self):
    self._serve(steps=40)
    prompt = ','.join(map(str, self._ids()))
    expected, _ = sax.Model(_MODEL).LM().Generate(prompt)[0]
    texts = [b'', b'']

    def take(items) -> None:
      for i, (text, prefix_len, _) in enumerate(items):
        texts[i] = texts[i][:prefix_len] + text.encode()

    sax.Model(_MODEL).LM().GenerateStream(prompt, lambda _, items: take(items))
    self.assertEqual(texts[0].decode(), expected)
    texts = [b'', b'']

    async def read() -> None:
      async for items in sax_aio.Model(_MODEL).LM().GenerateStream(prompt):
        take(items)

    asyncio.run(read())
    self.assertEqual(texts[0].decode(), expected)

  def test_completion_continues_after_a_lost_replica(self):
    replicas = [self._serve(steps=60) for _ in range(2)]
    for _, runner in replicas:
      runner.permits = threading.Semaphore(8)
    texts = []
    stopped = None
    for message in sax.Model(_MODEL).LM().CompleteStream(self._ids()):
      texts += [c.text for c in message.choices if not c.index]
      if stopped is None:
        (stopped,) = (r for r in replicas if r[1].admissions)
        for server, runner in replicas:
          # The server that will be lost is slow, so that its answer is not
          # finished before.
          runner.step_secs = 0.5 if server is stopped[0] else 0
          runner.permits.release(100)
        stopped[0].stop_server(grace=0)
    answer = self.words.decode(self._ids()[::-1])
    # The answer continues the prompt, so it keeps its first blank.
    self.assertEqual(''.join(texts), f' {answer}')
    self.assertGreater(len(texts), 1)
    for _, runner in replicas:
      self.assertNotEmpty(runner.admissions)


if __name__ == '__main__':
  absltest.main()
