"""Tests that every recorded message has the same meaning in our protocol."""

from collections.abc import Iterator
import struct
from typing import Any

from absl.testing import absltest
from absl.testing import parameterized
from google.protobuf import descriptor_pool
from google.protobuf import message
from google.protobuf import message_factory
from google.protobuf import text_format
from google.protobuf import unknown_fields

from saxml_ext.common.testing import golden
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import audio_pb2
from saxml_ext.protobuf import common_pb2
from saxml_ext.protobuf import custom_pb2
from saxml_ext.protobuf import lm_pb2
from saxml_ext.protobuf import modelet_pb2
from saxml_ext.protobuf import multimodal_pb2
from saxml_ext.protobuf import vision_pb2

_SERVICES = {
  service.full_name: service
  for module in (
    admin_pb2,
    audio_pb2,
    custom_pb2,
    lm_pb2,
    modelet_pb2,
    multimodal_pb2,
    vision_pb2,
  )
  for service in module.DESCRIPTOR.services_by_name.values()
}

# The field numbers of messages that were not recorded, from stock Sax's .proto
# files (saxml/protobuf/vision.proto, multimodal.proto).
_NUMBERS = {
  vision_pb2.VideoToTokenRequest: 'model_key 1 image_frames 2 extra_inputs 3',
  vision_pb2.VideoToTokenResponse: 'tokens 1',
  vision_pb2.TokenToVideoRequest: 'model_key 1 tokens 2 extra_inputs 3',
  vision_pb2.TokenToVideoResponse: 'image_frames 2',
  multimodal_pb2.FloatEmbedding: 'values 1',
  multimodal_pb2.DoubleEmbedding: 'values 1',
  multimodal_pb2.MediaPath: 'media_path 1 media_type 3',
  multimodal_pb2.DataItem: (
    'text 1 image_bytes 2 image_tokens 3 audio_float_samples 4 video 5'
    ' image_embedding 6 audio_tokens 7 media_path 8'
  ),
  multimodal_pb2.EmbedRequest: 'items 1',
  multimodal_pb2.EmbedResponse: 'embedding 1',
  multimodal_pb2.EmbedRpcRequest: 'model_key 1 request 2 extra_inputs 3',
  multimodal_pb2.EmbedRpcResponse: 'response 1',
}

# Our services do not have these calls: server reflection, and an invented
# method of a recorded client.
_NOT_OURS = ('/grpc.', '/sax.Admin/Nope')


def _recorded_calls() -> list[dict[str, Any]]:
  rows = golden.load('rpc_pairs.json')
  return [row for row in rows if not row['method'].startswith(_NOT_OURS)]


def _unknown(value: message.Message) -> Iterator[str]:
  """Yields the full names of messages in `value` that have unknown fields."""
  if len(unknown_fields.UnknownFieldSet(value)):
    yield value.DESCRIPTOR.full_name
  for field, content in value.ListFields():
    if field.message_type is None:
      continue
    if field.message_type.GetOptions().map_entry:
      if field.message_type.fields_by_name['value'].message_type:
        for item in content.values():
          yield from _unknown(item)
    elif isinstance(content, message.Message):
      yield from _unknown(content)
    else:
      for item in content:
        yield from _unknown(item)


class WireTest(parameterized.TestCase):
  def check(self, descriptor: Any, data_hex: str, text: str) -> None:
    data = bytes.fromhex(data_hex)
    cls = message_factory.GetMessageClass(descriptor)
    got = cls.FromString(data)
    self.assertEqual(got, text_format.Parse(text, cls()), data_hex)
    self.assertEmpty(list(_unknown(got)), data_hex)
    again = got.SerializeToString()
    # Only the order of map entries may differ.
    self.assertLen(again, len(data))
    self.assertEqual(cls.FromString(again), got)

  def test_requests(self):
    rows = _recorded_calls()
    self.assertGreater(len(rows), 100)
    for row in rows:
      service, method = row['method'].strip('/').split('/')
      descriptor = _SERVICES[service].methods_by_name[method].input_type
      with self.subTest(row['step']):
        self.check(descriptor, row['request_hex'], row['request_text'])

  def test_responses(self):
    checked = 0
    for row in _recorded_calls():
      service, method = row['method'].strip('/').split('/')
      descriptor = _SERVICES[service].methods_by_name[method].output_type
      if 'responses_hex' in row:
        pairs = zip(row['responses_hex'], row['responses_text'], strict=True)
      elif 'response_hex' in row:
        pairs = [(row['response_hex'], row['response_text'])]
      else:
        self.assertNotEqual(row['code'], 'OK')
        continue
      for data_hex, text in pairs:
        with self.subTest(row['step']):
          self.check(descriptor, data_hex, text)
          checked += 1
    self.assertGreater(checked, 50)

  def test_files(self):
    pool = descriptor_pool.Default()
    for row in golden.load('files.json'):
      descriptor = pool.FindMessageTypeByName(row['message'])
      with self.subTest(row['label']):
        self.check(descriptor, row['hex'], row['text'])

  def test_extra_inputs(self):
    descriptor = common_pb2.ExtraInputs.DESCRIPTOR
    for row in golden.load('validation.json')['extra_inputs']:
      if not row['ok']:
        continue
      cls = message_factory.GetMessageClass(descriptor)
      got = cls.FromString(bytes.fromhex(row['extra']['proto_hex']))
      self.assertEmpty(list(_unknown(got)))

  @parameterized.parameters(
    ('chip_memory', 'chip_type', admin_pb2.ModelServer.ChipType),
    ('topology_cores', 'chip_topology', admin_pb2.ModelServer.ChipTopology),
  )
  def test_enum_numbers(self, table: str, key: str, enum: Any):
    for row in golden.load('validation.json')[table]:
      self.assertEqual(enum.Value(row[key]), row['value'])

  @parameterized.parameters(
    (
      'sax.Admin',
      'Publish Update Unpublish List Stats WatchLoc WaitForReady Join',
    ),
    (
      'sax.Modelet',
      'Load UpdateLoaded Unload Export GetStatus Save WakeUp',
    ),
    (
      'sax.server.lm.LMService',
      'Score Generate GenerateStream Embed Gradient',
    ),
    ('sax.server.audio.AudioService', 'Recognize'),
    ('sax.server.custom.CustomService', 'Custom'),
  )
  def test_service_is_complete(self, service: str, methods: str):
    got = _SERVICES[service].methods_by_name
    self.assertCountEqual(got, methods.split())


class FieldNumbersTest(absltest.TestCase):
  def test_messages_without_recording_have_stock_numbers(self):
    got = {
      kind: ' '.join(
        f'{field.name} {number}'
        for number, field in sorted(kind.DESCRIPTOR.fields_by_number.items())
      )
      for kind in _NUMBERS
    }
    self.assertEqual(got, _NUMBERS)

  def test_types(self):
    double = b'\x08' + struct.pack('<d', 1.5)
    for value, expected in (
      (vision_pb2.VideoToTokenResponse(tokens=[1.5]), b'\x0a' + double),
      (vision_pb2.TokenToVideoRequest(tokens=[1.5]), b'\x12' + double),
      (multimodal_pb2.DoubleEmbedding(values=[1.5]), b'\x0a' + double),
      (
        multimodal_pb2.FloatEmbedding(values=[1.5]),
        b'\x0a\x04' + struct.pack('<f', 1.5),
      ),
      (multimodal_pb2.MediaPath(media_type='VIDEO'), b'\x18\x03'),
    ):
      self.assertEqual(value.SerializeToString(), expected)

  def test_services_have_their_methods(self):
    vision = _SERVICES['sax.server.vision.VisionService'].methods_by_name
    self.assertContainsSubset({'VideoToToken', 'TokenToVideo'}, vision)
    multimodal = _SERVICES['sax.server.multimodal.MultimodalService']
    self.assertIn('Embed', multimodal.methods_by_name)


if __name__ == '__main__':
  absltest.main()
