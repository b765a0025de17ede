"""Tests that our protocol has all that upstream's public protocol has."""

from absl.testing import absltest
from absl.testing import parameterized
from google.protobuf import descriptor_pb2

from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import audio_pb2
from saxml_ext.protobuf import common_pb2
from saxml_ext.protobuf import custom_pb2
from saxml_ext.protobuf import lm_pb2
from saxml_ext.protobuf import modelet_pb2
from saxml_ext.protobuf import multimodal_pb2
from saxml_ext.protobuf import vision_pb2
from third_party.saxml.testing import descriptors

_MODULES = (
  admin_pb2,
  audio_pb2,
  common_pb2,
  custom_pb2,
  lm_pb2,
  modelet_pb2,
  multimodal_pb2,
  vision_pb2,
)


def _files() -> list[descriptor_pb2.FileDescriptorProto]:
  return [
    descriptor_pb2.FileDescriptorProto.FromString(m.DESCRIPTOR.serialized_pb)
    for m in _MODULES
  ]


class RecordTest(parameterized.TestCase):
  @parameterized.parameters('mlperf4.0', 'r1.2.0')
  def test_ours_has_every_name_and_number(self, release):
    missing = set(descriptors.recorded(release)) - set(
      descriptors.lines(_files())
    )
    self.assertEqual(sorted(missing), [])

  def test_record_has_the_whole_public_protocol(self):
    kinds = [line.split()[0] for line in descriptors.recorded('mlperf4.0')]
    counts = {kind: kinds.count(kind) for kind in set(kinds)}
    self.assertEqual(
      counts,
      {
        'enum': 6,
        'field': 201,
        'message': 100,
        'method': 31,
        'service': 7,
        'value': 55,
      },
    )


class LinesTest(parameterized.TestCase):
  def _lines(self, change) -> set[str]:
    """Returns the difference that a change of ours makes."""
    files = _files()
    before = set(descriptors.lines(files))
    change({file.package: file for file in files}['sax.server.lm'])
    return before - set(descriptors.lines(files))

  def test_numbers_names_types_and_labels_count(self):
    def change(file: descriptor_pb2.FileDescriptorProto) -> None:
      (message,) = (m for m in file.message_type if m.name == 'ScoreRequest')
      message.field[0].number += 10
      message.field[1].label = message.field[1].LABEL_OPTIONAL
      message.field[2].type = message.field[2].TYPE_BYTES
      message.field[3].name += 's'

    self.assertLen(self._lines(change), 4)

  def test_methods_and_streams_count(self):
    def change(file: descriptor_pb2.FileDescriptorProto) -> None:
      file.service[0].method[0].server_streaming = True
      file.service[0].method[1].input_type = '.sax.server.lm.ScoreRequest'
      del file.service[0].method[2]

    self.assertLen(self._lines(change), 3)

  def test_nested_types_and_packing_count(self):
    def change(file: descriptor_pb2.FileDescriptorProto) -> None:
      (message,) = (
        m for m in file.message_type if m.name == 'GradientResponse'
      )
      message.nested_type[0].field[0].options.packed = False

    self.assertLen(self._lines(change), 1)


if __name__ == '__main__':
  absltest.main()
