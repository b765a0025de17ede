"""Tests of the admin server's view of a model on a server."""

from absl.testing import absltest

from saxml_ext.admin.modelet import held as held_lib
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import common_pb2
from saxml_ext.protobuf import modelet_pb2

_Info = modelet_pb2.GetStatusResponse.ModelWithStatus


class HeldTest(absltest.TestCase):
  def test_pause_doubles_up_to_a_minute(self):
    held = held_lib.Held(admin_pb2.Model(), settled=100.0)
    self.assertTrue(held.may_retry(100.0))
    for attempts, pause in ((1, 1), (2, 2), (3, 4), (7, 60), (10_000, 60)):
      held.attempts = attempts
      self.assertFalse(held.may_retry(100.0 + pause - 0.1))
      self.assertTrue(held.may_retry(100.0 + pause))

  def test_note_copies_the_reported_status(self):
    held = held_lib.Held(admin_pb2.Model(), attempts=3)
    held.note(_Info(model_status=common_pb2.UNLOADING))
    self.assertEqual(held.status, held_lib.LOADING)
    held.note(
      _Info(
        model_status=common_pb2.LOADED,
        method_stats=[{'method': 'lm.score'}],
      )
    )
    self.assertEqual(held.status, held_lib.LOADED)
    self.assertEqual((held.attempts, held.reported), (0, True))
    held.note(_Info(model_status=common_pb2.FAILED, failure_reason='why'))
    self.assertEqual((held.status, held.reason), (held_lib.FAILED, 'why'))
    self.assertEqual(held.methods, {'lm.score'})

  def test_progress_of_a_load_ends_with_the_load(self):
    held = held_lib.Held(admin_pb2.Model())
    loading = _Info(model_status=common_pb2.LOADING, failure_reason='1 of 3')
    for note in (held.note, held.note_progress):
      note(loading)
      self.assertEqual((held.status, held.reason), (held_lib.LOADING, '1 of 3'))
    held.note(_Info(model_status=common_pb2.LOADED))
    held.note_progress(loading)  # It is older.
    self.assertEqual((held.status, held.reason), (held_lib.LOADED, ''))

  def test_same_load_compares_what_servers_load(self):
    model = admin_pb2.Model(
      uuid=b'1', checkpoint_path='/c', requested_num_replicas=1
    )
    self.assertFalse(held_lib.same_load(None, model))
    for fields, same in (
      ({'requested_num_replicas': 2}, True),
      ({'acls': {'items': {'lm.score': ''}}}, True),
      ({'uuid': b'2'}, False),
      ({'checkpoint_path': '/d'}, False),
      ({'overrides': {'A': '1'}}, False),
    ):
      other = admin_pb2.Model()
      other.CopyFrom(model)
      other.MergeFrom(admin_pb2.Model(**fields))
      self.assertEqual(held_lib.same_load(model, other), same, fields)


if __name__ == '__main__':
  absltest.main()
