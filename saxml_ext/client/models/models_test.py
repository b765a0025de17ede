"""Tests vision, audio, multimodal and custom methods over loopback."""

import asyncio
import urllib.request

from absl.testing import absltest

from saxml_ext.client import sax
from saxml_ext.client import sax_aio
from saxml_ext.client.testing import fake_cell
from saxml_ext.client.testing import fake_media
from saxml_ext.common import errors
from saxml_ext.common import net
from saxml_ext.protobuf import multimodal_pb2


class ModelsTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.server = fake_media.FakeMediaServer()
    self.addCleanup(self.server.stop)
    self.options = sax.Options(proxy_addr=self.server.address)
    self.model = sax.Model(fake_cell.MODEL, self.options)

  def test_vision(self):
    vm = self.model.VM()
    self.assertEqual(vm.Classify(b'cat'), [('label of cat', -0.5)])
    self.assertEqual(vm.TextToImage('t'), [(b't 1', -1), (b't 2', -2)])
    self.assertEqual(
      vm.TextAndImageToImage('t', b'i'), [(b'ti 1', -1), (b'ti 2', -2)]
    )
    self.assertEqual(vm.ImageToImage(b'i')[0], (b'i 1', -1))
    self.assertEqual(vm.Embed(b'\1\2'), [1.0, 2.0])
    self.assertEqual(vm.ImageToText(b'i', 'Le caf'), [('Le café'.encode(), -1)])
    self.assertEqual(
      vm.VideoToText([b'a', b'b'], 'of '), [(b'of 2 frames', -1)]
    )
    self.assertEqual(vm.VideoToToken([b'a', b'bcd']), [1.5, 3.5])
    self.assertEqual(vm.TokenToVideo([1.5, 3.5]), [b'1.5', b'3.5'])

  def test_texts_are_sent_as_bytes(self):
    vm = self.model.VM()
    self.assertEqual(vm.Classify('cat'), [('label of cat', -0.5)])
    self.assertEqual(vm.Embed('\1\2'), [1.0, 2.0])
    self.assertEqual(vm.ImageToImage(text='i')[0], (b'i 1', -1))
    self.assertEqual(vm.VideoToToken(['é']), [2.5])
    self.assertEqual(self.model.CM().Custom('in', 'reverse'), b'reverse in')

  def test_detect(self):
    got = self.model.VM().Detect(b'i', ['cat'], [(1.0, 2.0, 3.0, 4.0)])
    self.assertEqual(
      got, [(1.5, 2.0, 3.0, 4.0, b'cat', 0.25, (1, 2, b'\0\xff'))]
    )
    [box] = self.server.requests[0].boxes_of_interest
    self.assertEqual((box.cx, box.cy, box.w, box.h), (1, 2, 3, 4))

  def test_model_key_and_extra_inputs_are_sent(self):
    options = sax.ModelOptions()
    options.SetExtraInput('temperature', 0.5)
    self.model.VM().Classify(b'cat', options)
    [request] = self.server.requests
    self.assertEqual(request.model_key, fake_cell.MODEL)
    self.assertEqual(request.extra_inputs.items['temperature'], 0.5)

  def test_audio(self):
    self.assertEqual(self.model.AM().Recognize(b'abc'), [('3 bytes', -2)])
    [request] = self.server.requests
    self.assertEqual(request.audio_format, request.WAVEFORM_FILE)
    self.assertEqual(self.model.AM().Recognize(id='abc'), [('3 bytes', -2)])
    for wrong in ({}, {'audio_bytes': b'a', 'id': b'a'}):
      with self.assertRaisesRegex(TypeError, f'got {len(wrong)} recordings'):
        self.model.AM().Recognize(**wrong)

  def test_custom(self):
    cm = self.model.CM()
    self.assertEqual(cm.Custom(b'in', 'reverse'), b'reverse in')
    self.assertEqual(cm.CustomNoException(b'in', 'reverse'), b'reverse in')

  def test_multimodal(self):
    item = multimodal_pb2.DataItem(text='hi')
    request = multimodal_pb2.GenerateRequest(items=[item])
    [result] = self.model.MM().Generate(request).results
    self.assertEqual(list(result.items), [item])
    request = multimodal_pb2.ScoreRequest(suffix_items=[item, item])
    scores = [r.score for r in self.model.MM().Score(request).results]
    self.assertEqual(scores, [-1, -2])
    request = multimodal_pb2.EmbedRequest(
      items=[
        multimodal_pb2.DataItem(audio_tokens={'id': [1, 2]}),
        multimodal_pb2.DataItem(image_embedding={'values': [0.5]}),
        multimodal_pb2.DataItem(
          media_path={'media_path': 'p', 'media_type': 'VIDEO'}
        ),
      ]
    )
    embedding = self.model.MM().Embed(request).embedding
    self.assertEqual(
      list(embedding.values), [item.ByteSize() for item in request.items]
    )

  def test_missing_method_is_unimplemented(self):
    with self.assertRaises(errors.Unimplemented):
      self.model.LM().Generate('hi')
    server = fake_cell.FakeModelServer()
    self.addCleanup(server.stop)
    options = sax.Options(proxy_addr=server.address)
    cm = sax.Model(fake_cell.MODEL, options).CM()
    self.assertIsInstance(
      cm.CustomNoException(b'in', 'reverse'), errors.Unimplemented
    )

  def test_awaited(self):
    model = sax_aio.Model(fake_cell.MODEL, self.options)

    async def ask():
      return await asyncio.gather(
        model.VM().Classify(b'cat'),
        model.AM().Recognize(b'abc'),
        model.CM().Custom(b'in', 'reverse'),
      )

    self.assertEqual(
      asyncio.run(ask()),
      [[('label of cat', -0.5)], [('3 bytes', -2)], b'reverse in'],
    )


class DebugPortTest(absltest.TestCase):
  def test_page_names_models_and_connections(self):
    cell = fake_cell.FakeCell(self.create_tempdir().full_path)
    self.addCleanup(cell.stop)
    sax.SetRoot(cell.root)
    server = cell.add_server()
    sax.Model(fake_cell.MODEL).LM().Generate('hi')
    port = net.pick_free_port()
    sax.StartDebugPort(port)
    with urllib.request.urlopen(f'http://127.0.0.1:{port}/') as response:
      text = response.read().decode()
    self.assertIn(f'{fake_cell.MODEL}: {server.address}', text)
    self.assertIn(f'{server.address}: 0 outstanding', text)
    with self.assertRaisesRegex(errors.FailedPrecondition, str(port)):
      sax.StartDebugPort(port)


if __name__ == '__main__':
  absltest.main()
