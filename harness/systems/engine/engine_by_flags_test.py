from absl.testing import absltest
from absl.testing import flagsaver
from absl.testing import parameterized

from harness.data import bundle
from harness.systems.engine import engine_by_flags


class SubjectTest(parameterized.TestCase):
  @parameterized.parameters(
    ({'checkpoint': ''}, 'no checkpoint: give --checkpoint'),
    ({'checkpoint': '/none'}, "checkpoint '/none' is no directory"),
    # A Hugging Face directory, whose tokenizer is there.
    ({}, 'model'),
    ({'params': 'Tinny'}, 'Tinny'),
    ({'override': ['BATCH_SIZE']}, '--override=BATCH_SIZE: .* Write KEY=VALUE'),
    (
      {'override': ['BATCH_SIZE=a']},
      'the value is not JSON .* Write KEY=VALUE',
    ),
    (
      {'override': ['BATCHSIZE=1']},
      'no such attribute. Did you mean BATCH_SIZE',
    ),
    ({'override': ['BATCH_SIZE="1"']}, 'BATCH_SIZE is 32, of type int'),
    ({'max_input_length': 513}, '--max_input_length=513 is above 512'),
    ({'sample_count': 9999}, '9999 samples asked of .*, which holds 512'),
  )
  def test_what_cannot_be_used(self, flags, message):
    flags = {'checkpoint': bundle.model_dir(), 'sample_count': 2, **flags}
    with flagsaver.flagsaver(**flags):
      with self.assertRaisesRegex((OSError, ValueError), message):
        engine_by_flags.make(engine_by_flags.load())


if __name__ == '__main__':
  absltest.main()
