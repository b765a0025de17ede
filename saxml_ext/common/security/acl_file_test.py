"""Tests of the files of access control lists."""

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.common import errors
from saxml_ext.common.security import acl_file


class AclFileTest(parameterized.TestCase):
  def test_valid_file_is_parsed(self):
    lists = acl_file.parse(b'{"acl/a": ["x", "spiffe://y/z"], "acl/b": []}')
    self.assertEqual(
      lists.members,
      {'acl/a': frozenset({'x', 'spiffe://y/z'}), 'acl/b': frozenset()},
    )
    self.assertTrue(lists.exists and lists.usable)
    self.assertEqual(acl_file.parse(b'{}').members, {})

  @parameterized.parameters(
    (b'', 'not JSON'),
    (b'\xff{}', 'not JSON'),
    (b'[' * 100_000, 'not JSON'),
    (b'{"acl/a": ["x"], "acl/a": ["y"]}', 'twice'),
    (b'["acl/a"]', 'not a JSON object'),
    (b'{"a": ["x"]}', 'begins with acl/'),
    (b'{"acl/": ["x"]}', 'begins with acl/'),
    (b'{"acl/all": ["x"]}', 'everybody'),
    (b'{"acl/a": "x"}', 'not a list of texts'),
    (b'{"acl/a": [1]}', 'not a list of texts'),
    (b'{"acl/a": [""]}', 'is not a name'),
    (b'{"acl/a": ["x y"]}', 'is not a name'),
    ('{"acl/a": ["ä"]}'.encode(), 'is not a name'),
  )
  def test_invalid_files_are_refused(self, data: bytes, text: str):
    with self.assertRaisesRegex(errors.InvalidArgument, text):
      acl_file.parse(data)

  def test_file_is_in_the_directory_of_the_config(self):
    self.assertEqual(
      acl_file.path_of('gs://b/r', '/sax/t'), 'gs://b/r/sax/t/acls.json'
    )


if __name__ == '__main__':
  absltest.main()
